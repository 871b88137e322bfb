"""Sources with a watermark: their partitions, which are complete, and which a refresh reads."""
