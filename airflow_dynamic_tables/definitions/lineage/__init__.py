"""What of a table a change of a query touches, and of the tables that read it."""
