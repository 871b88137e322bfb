"""Spark's own Connect server on this machine, started and stopped for real."""
