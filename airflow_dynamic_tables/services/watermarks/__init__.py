"""Sources with a watermark: which of their partitions are there and whole, and what of them a refresh reads."""
