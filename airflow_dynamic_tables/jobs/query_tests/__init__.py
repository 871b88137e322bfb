"""The job of unit tests: queries run over rows that were given, and what they return as text."""
