"""User declarations in YAML and SQL, read into frozen, checked models. This package does not depend on catalogs or the ledger."""
