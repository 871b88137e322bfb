"""Old versions and what is left behind."""
