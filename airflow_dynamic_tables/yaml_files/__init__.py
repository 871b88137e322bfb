"""YAML files as plain data, with the line and column of every key and value."""
