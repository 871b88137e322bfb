"""Access of a job to Spark beyond SQL: through the JVM of its own process, or a Spark Connect server."""
