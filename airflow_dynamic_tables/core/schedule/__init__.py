"""When a table is refreshed: freshness, cron, refresh mode, wall clock."""
