"""What catalogs hold, by name: listed, described, made and dropped."""
