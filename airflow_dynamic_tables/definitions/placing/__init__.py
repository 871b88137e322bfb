"""What is wrong with how a table is kept: its format, in its catalog, and its options."""
