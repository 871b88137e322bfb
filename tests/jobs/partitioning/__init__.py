"""What the job computes of columns to partition rows by."""
