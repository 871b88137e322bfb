"""Clients of external systems, and the stores that catalogs pass to formats; clients depend on neither catalogs nor commits."""
