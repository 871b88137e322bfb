"""Unit tests of queries, from the file to the verdict."""
