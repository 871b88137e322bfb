"""PostgreSQL databases as catalogs."""
