"""Servers of Iceberg's REST protocol: a stand-in that fails on demand, and Iceberg's own."""
