"""The REST gateway as a command: its server, made of what the arguments name."""
