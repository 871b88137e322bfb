"""Statements carried out: what is declared and what catalogs have then, and what is refused."""
