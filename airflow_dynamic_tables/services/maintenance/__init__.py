"""Maintenance of an installation: sweeping, expiry, compaction, recovery, missing reports."""
