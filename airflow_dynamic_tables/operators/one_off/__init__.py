"""The operator of CREATE TABLE AS."""
