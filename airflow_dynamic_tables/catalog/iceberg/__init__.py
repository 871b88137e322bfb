"""External Iceberg catalogs: REST servers, Hive metastores, Glue, SQL databases."""
