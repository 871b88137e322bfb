"""Database servers that a job reads from or writes into: how it logs in, and how the rows of a stage get there."""
