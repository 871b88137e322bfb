"""Delta logs: snapshots are read by delta-rs, entries are written by an atomic put-if-absent."""
