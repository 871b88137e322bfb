"""The format of one table, and whether its catalog can hold it."""

from __future__ import annotations

from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry


def format_of(entry: Entry, declared: TableDeclaration) -> str:
    """The format that a table has, by itself or by the defaults."""
    return declared.format or entry.defaults.format or DEFAULT_FORMAT


def misplaced(entry: Entry, declared: TableDeclaration) -> str | None:
    """Why the table cannot be in its catalog; ``None`` when it can, and when the catalogs file does not tell."""
    if entry.formats is None:
        return None
    atomicity = declared.atomicity or entry.defaults.atomicity or "staged"
    return entry.formats.problem(entry.identifier.catalog, format_of(entry, declared), atomicity)
