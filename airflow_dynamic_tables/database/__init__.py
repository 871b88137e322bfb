"""The SQL database under catalog and ledger: engine, tables, migrations. Knows no catalog and no ledger."""
