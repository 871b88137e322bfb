"""What tasks have in common that run a Spark job."""
