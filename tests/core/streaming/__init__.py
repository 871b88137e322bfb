"""Partition time, watermarks, batches, partition commit."""
