"""The client of DolphinScheduler, against a server that holds every request against its published API."""
