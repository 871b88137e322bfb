"""How a job reaches Spark. No table, no ledger here."""
