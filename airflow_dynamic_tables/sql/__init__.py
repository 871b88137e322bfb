"""Executing statements: a session, and the service calls of each statement. No terminal."""
