"""How a format makes a stage visible in one step. No scheduling, no ledger here."""
