"""One client for each outside system, and the stores by which catalogs offer them. They know no catalog and no commit."""
