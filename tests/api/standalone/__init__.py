"""The gateway as a server of its own."""
