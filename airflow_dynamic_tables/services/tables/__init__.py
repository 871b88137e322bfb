"""Dynamic tables: entries, status, history, rollback."""
