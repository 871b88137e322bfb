"""What tests share: servers, clocks, jobs. Imported by full name, ``tests.support.…``."""
