"""What a table is: columns and their types, partitions, versions, formats, retention."""
