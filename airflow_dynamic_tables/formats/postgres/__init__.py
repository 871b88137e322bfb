"""Tables in PostgreSQL: refreshed tables are committed in one transaction; other tables are sources read over JDBC."""
