"""A PostgreSQL server: connections, tables and types."""
