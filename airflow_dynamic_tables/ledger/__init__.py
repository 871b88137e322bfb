"""The ledger of stages and refreshes. It depends on states and leases, not on tables or files."""
