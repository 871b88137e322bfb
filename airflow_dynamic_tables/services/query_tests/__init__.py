"""Unit tests of queries: planned as a refresh is, run in one Spark, compared with what they expect."""
