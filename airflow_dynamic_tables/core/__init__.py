"""Values and decisions: functions from values to values. No clock, no I/O, no library but croniter (in cron)."""
