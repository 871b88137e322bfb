"""What PyIceberg knows: catalogs of every kind, types and content of tables. No commit of rows."""
