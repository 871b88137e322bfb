"""Small files of Hive tables made few: which may be, and the commit that does it without a version."""
