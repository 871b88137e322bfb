"""Catalogs in a Hive metastore."""
