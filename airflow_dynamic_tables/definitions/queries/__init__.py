"""Queries as text: parsed, edited. The only place that knows the grammar of queries."""
