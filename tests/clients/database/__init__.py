"""The database under catalog and ledger."""
