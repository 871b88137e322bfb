"""What catalog and staging both know of a table format: types, schemas. No catalog, no commit."""
