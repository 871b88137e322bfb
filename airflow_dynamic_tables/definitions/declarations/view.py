"""The declaration of a view."""

from __future__ import annotations

from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name


class ViewDeclaration(Declaration):
    """A named query that expands inside the queries that read it."""

    name: Name
    """Name: `view`, `database.view` or `catalog.database.view`."""
    query: Name
    """The SELECT (Spark SQL)."""
    comment: str | None = None
    """What the view is, for readers."""
