"""The ``iceberg`` catalog, on a server of Iceberg's REST protocol."""
