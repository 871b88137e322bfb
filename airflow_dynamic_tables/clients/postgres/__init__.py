"""A PostgreSQL server: connections and types."""
