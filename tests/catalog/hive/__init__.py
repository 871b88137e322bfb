"""The ``hive`` catalog, on a real metastore."""
