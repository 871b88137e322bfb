"""Tables as others see and change them: Iceberg, Hive, plain folders."""
