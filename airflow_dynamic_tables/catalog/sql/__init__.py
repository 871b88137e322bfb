"""Catalogs in a SQL database, whose physical tables are Iceberg tables."""
