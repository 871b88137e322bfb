"""Definitions and what is deployed of them: compared, applied, and declared by statements."""
