"""Catalogs in a SQL database; their physical tables are Iceberg."""
