"""Tables of a PostgreSQL server: those that are refreshed here, and how others are read over JDBC."""
