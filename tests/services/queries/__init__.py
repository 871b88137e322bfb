"""Views and functions in queries."""
