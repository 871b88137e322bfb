"""Dynamic tables: registered, looked at, rolled back."""
