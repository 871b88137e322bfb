"""Statements on a terminal: the command, its answers, and the interactive shell."""
