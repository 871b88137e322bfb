"""The ``sql`` catalog, on SQLite and PostgreSQL."""
