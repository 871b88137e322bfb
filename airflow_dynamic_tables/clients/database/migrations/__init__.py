"""Alembic migrations of the database and their environment."""
