"""Tables as others see and change them: Iceberg, Delta, Hive, PostgreSQL, plain folders."""
