"""Partitions, schemas, retention."""
