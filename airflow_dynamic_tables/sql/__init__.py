"""Statements carried out: a session, and what each statement asks of the services. No terminal here."""
