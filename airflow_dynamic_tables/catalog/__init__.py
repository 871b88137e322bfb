"""Where databases, tables and dynamic-table metadata live. No refresh logic here."""
