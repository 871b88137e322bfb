"""Iceberg tables, committed by PyIceberg."""
