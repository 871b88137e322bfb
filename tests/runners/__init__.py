"""How a job reaches Spark."""
