"""Schedulers that refresh tables at their ticks, one client for each, looked up in the registry. They do not use catalogs."""
