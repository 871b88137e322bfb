"""Iceberg tables."""
