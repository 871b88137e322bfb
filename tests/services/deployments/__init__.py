"""Definitions and what is deployed of them."""
