"""Tables of ours in PostgreSQL."""
