"""Entries of Delta tables, in whatever catalog they are: where a table lies; its log knows the rest."""
