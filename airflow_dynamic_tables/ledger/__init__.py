"""The record of stages and refreshes. Knows states and leases, not tables or files."""
