"""What every catalog promises."""
