"""The ``jdbc`` catalog, on a real PostgreSQL."""
