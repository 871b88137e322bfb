"""The REST gateway, asked over HTTP."""
