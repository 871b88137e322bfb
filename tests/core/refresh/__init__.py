"""Plans, results, expectations."""
