"""The command ``sql`` and its shell."""
