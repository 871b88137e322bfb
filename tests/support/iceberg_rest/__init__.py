"""A server of Iceberg's REST protocol for the tests: nobody keeps a small one that could be installed."""
