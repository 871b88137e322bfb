"""Unit tests of queries as declared."""
