"""Values and pure functions. No clock, no I/O, and no library except croniter (in cron)."""
