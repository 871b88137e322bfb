"""Alembic migrations, oldest first; a released one is never changed."""
