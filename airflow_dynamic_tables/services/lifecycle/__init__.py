"""Registering, suspending, renaming and dropping dynamic tables."""
