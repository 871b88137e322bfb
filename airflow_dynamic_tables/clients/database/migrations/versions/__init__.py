"""Alembic migrations, oldest first; a landed one is never changed."""
