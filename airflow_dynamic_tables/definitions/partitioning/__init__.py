"""What is wrong with the partition keys of a table."""
