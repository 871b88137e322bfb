"""Unit tests of queries as declared: read, checked against the definitions, and their values against the types of columns."""
