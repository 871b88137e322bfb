"""Partition keys that are computed of columns, as Spark computes them without Iceberg's library."""
