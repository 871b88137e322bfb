"""Unit tests of queries as values."""
