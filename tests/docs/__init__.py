"""What the documentation says is true, and what it tells a reader to type works."""
