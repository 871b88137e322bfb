"""One refresh from begin to end."""
