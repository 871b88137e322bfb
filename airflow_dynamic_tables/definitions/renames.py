"""Former names of renamed tables, and their validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_dynamic_tables.core.identifiers import TableIdentifier, split_name
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.model import DynamicTable

if TYPE_CHECKING:  # a task process does not import the YAML models
    from airflow_dynamic_tables.definitions.entries import Entry

_KEY = "renamed_from"


def former_name(table: DynamicTable) -> TableIdentifier | None:
    """Return the declared former full name of a table; ``None`` when it declares none.

    :raises ValueError: when that is not the name of a table in the same database.
    """
    if table.renamed_from is None:
        return None
    parts = split_name(table.renamed_from)
    own = (table.identifier.catalog, table.identifier.database)
    if len(parts) > 3 or (*own[: 3 - len(parts)], *parts)[:2] != own:
        raise ValueError(f"a table is renamed within its database; {table.renamed_from!r} is not in {'.'.join(own)}")
    return TableIdentifier(*own, parts[-1])


def renaming_mistakes(
    tables: Mapping[TableIdentifier, DynamicTable], entries: Mapping[TableIdentifier, Entry]
) -> Iterator[tuple[TableIdentifier, Mistake]]:
    """Yield the tables whose former name is not unique, with their mistakes."""
    first_of: dict[TableIdentifier, TableIdentifier] = {}
    for name, table in tables.items():
        entry = entries[name]
        try:
            former = former_name(table)
        except ValueError as error:
            yield name, entry.mistake(_KEY, f"{error}")
            continue
        if former is None:
            continue
        first = first_of.setdefault(former, name)
        if former in entries:
            other = entries[former]
            where = f"{other.document.path}:{other.document.line(other.location)}"
            yield name, entry.mistake(_KEY, f"{former} is still declared in {where}; its data cannot be those of {name}, too")
        elif first != name:
            yield name, entry.mistake(_KEY, f"{first} was renamed from {former}, too; only one can have its data")
