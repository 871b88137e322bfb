"""How the schema of the database came to be: Alembic migrations and their environment."""
