"""What PyIceberg knows of tables: types and content. No catalog, no commit."""
