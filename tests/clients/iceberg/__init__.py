"""Iceberg's types."""
