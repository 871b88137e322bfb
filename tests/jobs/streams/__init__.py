"""The Spark job, run by a real Spark."""
