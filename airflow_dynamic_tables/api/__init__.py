"""The REST gateway: an app that is given who may do what and how a refresh is started. It calls services only."""
