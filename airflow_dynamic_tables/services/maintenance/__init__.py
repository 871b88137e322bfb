"""What keeps an installation tidy: sweeping, expiring, upgrading, reporting, seeing whether it answers."""
