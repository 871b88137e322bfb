"""What changes of queries touch."""
