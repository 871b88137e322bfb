"""The SQL database of catalog and ledger: engine, tables, migrations."""
