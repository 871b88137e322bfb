"""Tables of a database server, read over JDBC."""
