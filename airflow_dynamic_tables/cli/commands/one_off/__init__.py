"""The command that makes a table of a query, once."""
