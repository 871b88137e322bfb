"""Hive tables."""
