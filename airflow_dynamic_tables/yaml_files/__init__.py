"""YAML with positions: plain data, and for every key and value of it the line and column where it stands."""
