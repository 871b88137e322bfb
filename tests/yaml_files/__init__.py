"""YAML files as text and as data."""
