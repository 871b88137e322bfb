"""Queries as text that is edited."""
