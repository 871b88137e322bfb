"""Facts about the tables of a project that its documentation shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import ColumnOrigin
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import column_types
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import column_origins
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError
from airflow_dynamic_tables.services.status import TableStatus, overview
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class DocumentedTable:
    """A defined table. It has no columns before its first refresh, or while its catalog is unavailable."""

    table: DynamicTable
    status: TableStatus
    columns: tuple[Column, ...]
    origins: Mapping[str, tuple[ColumnOrigin, ...]]
    """The columns of other tables that each column derives from, as far as they are known."""
    readers: tuple[TableIdentifier, ...]
    """The dynamic tables that read it."""
    tests: tuple[str, ...]
    """The names of the tests of its query."""


@dataclass(frozen=True, slots=True)
class DocumentedSource:
    """A source that defined tables read; one that is not declared is a name only."""

    identifier: TableIdentifier
    source: Source | None
    readers: tuple[TableIdentifier, ...]


@dataclass(frozen=True, slots=True)
class Documentation:
    """All tables of a project and their sources, sorted by name."""

    tables: tuple[DocumentedTable, ...]
    sources: tuple[DocumentedSource, ...]


def document(workspace: Workspace, definitions: Definitions, tests: Iterable[tuple[TableIdentifier, str]]) -> Documentation:
    """Return the documentation of all defined tables. Their status is that of the history.

    :param tests: tables and names of the tests of their queries.
    """
    names_of_tests: dict[TableIdentifier, list[str]] = {}
    for table, name in tests:
        names_of_tests.setdefault(table, []).append(name)
    entries = {name: _entry(workspace, name) for name in sorted(definitions.tables)}
    statuses = overview(workspace, entries, definitions.tables)
    columns = {
        **{str(name): [*column_types(source.schema, source.partition_keys)] for name, source in definitions.sources.items()},
        **{str(name): [column.name for column in entry.columns] for name, entry in entries.items() if entry is not None},
    }
    tables = tuple(
        DocumentedTable(
            table=definitions.tables[name],
            status=status,
            columns=entry.columns if entry is not None else (),
            origins=column_origins(definitions.tables[name].expanded_query, columns),
            readers=definitions.downstream(name),
            tests=tuple(names_of_tests.get(name, ())),
        )
        for (name, entry), status in zip(entries.items(), statuses, strict=True)
    )
    read = {name for table in definitions.tables.values() for name in table.upstream} - definitions.tables.keys()
    sources = (DocumentedSource(name, definitions.sources.get(name), definitions.downstream(name)) for name in sorted(read))
    return Documentation(tables, tuple(sources))


def _entry(workspace: Workspace, name: TableIdentifier) -> CatalogDynamicTable | None:
    """Return the catalog entry of a table; ``None`` if there is none, or the catalog is unavailable."""
    with suppress(CatalogError, ConfigurationError):
        return workspace.find_entry(name)
    return None
