"""The client of a Hive metastore."""
