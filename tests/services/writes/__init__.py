"""Stages and their ends."""
