"""Rows that other engines deleted without writing their data files anew."""
