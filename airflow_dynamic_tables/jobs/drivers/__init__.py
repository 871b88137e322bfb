"""What a job asks beside SQL: of the JVM of its own process, or of a Spark Connect server."""
