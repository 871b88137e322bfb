"""What every ledger promises."""
