"""Growing sources: partition times, watermarks, complete partitions, and plans of streaming jobs."""
