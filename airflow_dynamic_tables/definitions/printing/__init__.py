"""A dynamic table as somebody would declare it: the keys that say it, and these as YAML and as a statement."""
