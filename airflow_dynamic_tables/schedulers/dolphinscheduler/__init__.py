"""DolphinScheduler, 3.2 and later: workflows whose one HTTP task asks the REST gateway for a refresh."""
