"""CREATE TABLE AS, which creates or replaces a table in one step, and SELECT, which only reads."""
