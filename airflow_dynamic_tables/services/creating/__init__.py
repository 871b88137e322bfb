"""CREATE TABLE AS: a table is made of a query, once, or replaced by one; it is there whole or not at all."""
