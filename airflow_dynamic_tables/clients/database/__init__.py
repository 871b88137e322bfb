"""The SQL database under catalog and ledger: engine, tables, migrations."""
