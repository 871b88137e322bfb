"""Hive tables of Parquet or ORC files, committed in the metastore."""
