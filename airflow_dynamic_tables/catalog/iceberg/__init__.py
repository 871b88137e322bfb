"""Iceberg catalogs of others: REST servers, Hive metastores, Glue, databases."""
