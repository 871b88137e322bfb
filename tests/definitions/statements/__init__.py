"""Statements: parsed, and read from files of definitions."""
