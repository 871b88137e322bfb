"""How folders of files are read."""
