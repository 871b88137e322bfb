"""The command line: one table of commands, shared by dynamic-tables and airflow dynamic-tables."""
