"""What may stand in a definitions file: closed pydantic models."""
