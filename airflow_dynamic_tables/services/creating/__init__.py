"""Queries of statements: CREATE TABLE AS, which makes or replaces a table in one step, and SELECT, which only reads."""
