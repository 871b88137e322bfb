"""The pydantic models of a definitions file."""
