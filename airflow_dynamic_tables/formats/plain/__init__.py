"""Folders of files that nobody here refreshes: Parquet, ORC, CSV, JSON."""
