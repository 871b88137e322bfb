"""A Hive metastore over Thrift: calls, and tables as it has them."""
