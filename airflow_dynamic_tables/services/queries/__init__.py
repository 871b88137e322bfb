"""What only catalogs know of a query: their views and functions."""
