"""What PyIceberg knows of tables: types, content, errors. No catalog, no commit."""
