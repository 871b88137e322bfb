"""Freshness, cron, refresh mode."""
