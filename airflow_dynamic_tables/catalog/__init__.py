"""Catalogs: databases, tables and the metadata of dynamic tables, without refresh logic."""
