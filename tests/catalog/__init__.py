"""What only one type of catalog promises, and the manager of them all."""
