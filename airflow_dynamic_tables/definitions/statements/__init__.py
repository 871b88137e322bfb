"""The SQL statements of dynamic tables: their grammar, and where each part of one stands."""
