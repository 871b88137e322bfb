"""A dynamic table as a declaration, in YAML and as a statement."""
