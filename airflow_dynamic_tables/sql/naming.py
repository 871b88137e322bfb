"""Names in statements made full, so that a query means the same wherever it is kept."""

from __future__ import annotations

from airflow_dynamic_tables.core.identifiers import join_name
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.editing import Edit


def full_names(query: str, catalog: str, database: str) -> list[Edit]:
    """What stands before the short names of tables in a query, so that they are full ones; offsets are of the query."""
    edits: list[Edit] = []
    for reference in analyse(query).references:
        missing = (catalog, database)[: 3 - len(reference.parts)]
        if missing:
            start = reference.parts[0].start
            edits.append((start, start, f"{join_name(*missing)}."))
    return edits
