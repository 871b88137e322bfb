"""Definitions: read, checked, built; ``broken`` holds one mistake a file."""
