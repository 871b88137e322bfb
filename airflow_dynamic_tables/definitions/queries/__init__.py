"""Parsing, analysis and rewriting of queries. No other package depends on the grammar of queries."""
