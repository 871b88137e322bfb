"""The operator that makes a table of a query, once."""
