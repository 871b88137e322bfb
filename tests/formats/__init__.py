"""What only one format promises."""
