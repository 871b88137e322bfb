"""How tables are read, staged and made visible: a folder for each format, found by the registry. Formats know no ledger."""
