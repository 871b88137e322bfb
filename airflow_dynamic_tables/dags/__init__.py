"""Components of the generated DAGs."""
