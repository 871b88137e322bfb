"""Stages between ledger and table: leases, settling, landing, quarantine."""
