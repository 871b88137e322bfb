"""Table formats: reading, staging and committing tables, independent of the ledger. The registry finds the implementation."""
