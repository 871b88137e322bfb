"""The strategy of streaming queries: their plans, what is kept of them beside the table, their jobs."""
