"""What keeps an installation tidy: sweeping, expiring, upgrading, seeing whether it answers."""
