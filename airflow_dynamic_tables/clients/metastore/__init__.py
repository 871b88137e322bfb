"""A Hive metastore over Thrift."""
