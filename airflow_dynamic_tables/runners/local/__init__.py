"""A Spark Connect server on this machine, started on demand and stopped when idle."""
