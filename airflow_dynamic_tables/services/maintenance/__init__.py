"""What keeps an installation tidy: sweeping, expiring, upgrading."""
