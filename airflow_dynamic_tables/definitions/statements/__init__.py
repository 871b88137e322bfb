"""The SQL statements of dynamic tables: grammar and positions."""
