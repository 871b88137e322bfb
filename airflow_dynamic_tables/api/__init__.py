"""The REST gateway. Authorization and the start of refreshes are given to it; it calls services only."""
