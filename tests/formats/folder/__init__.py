"""Plain folders of files."""
