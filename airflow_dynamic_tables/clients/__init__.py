"""One client for each outside system. They know no catalog, no commit and not each other."""
