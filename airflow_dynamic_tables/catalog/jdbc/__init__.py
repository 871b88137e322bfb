"""PostgreSQL as a catalog to read."""
