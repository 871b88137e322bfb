"""What every format that stages promises."""
