"""The strategy of streaming queries: plans, progress beside the table, jobs."""
