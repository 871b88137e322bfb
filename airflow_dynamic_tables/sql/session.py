"""The session in which statements run, their results, and the completion of short names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name
from airflow_dynamic_tables.core.results import plain
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.documents import Edit
from airflow_dynamic_tables.definitions.statements.values import Name
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError
from airflow_dynamic_tables.services.ctas.planning import Decision
from airflow_dynamic_tables.services.ctas.selecting import Run
from airflow_dynamic_tables.services.ctas.wanted import Created, WantedTable
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.workspace import Workspace

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def full_names(query: str, catalog: str, database: str) -> list[Edit]:
    """Return the edits that complete the short table names in a query; offsets are of the query."""
    edits: list[Edit] = []
    for reference in analyse(query).references:
        missing = (catalog, database)[: 3 - len(reference.parts)]
        if missing:
            start = reference.parts[0].start
            edits.append((start, start, f"{join_name(*missing)}."))
    return edits


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Rows with a value for every column, and a note about them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StatementResult(StatementRows):
    """The answer of a statement; ``shown`` are the columns that a terminal shows, all if empty."""

    shown: tuple[str, ...] = ()

    @property
    def answer(self) -> StatementRows:
        """The answer, without the choice of columns for a terminal."""
        return StatementRows(self.columns, self.rows, self.note)

    @classmethod
    def of(cls, result: DataclassInstance, *shown: str, note: str | None = None) -> StatementResult:
        """Return a result with one row, with a column for every field of a dataclass."""
        row = plain(result)
        return cls(tuple(row), (tuple(row.values()),), note, shown)

    @classmethod
    def listing(cls, kind: type[DataclassInstance], results: Iterable[DataclassInstance], *shown: str) -> StatementResult:
        """Return a result with a row for each dataclass of a kind, with a column for every field."""
        rows = tuple(tuple(plain(result).values()) for result in results)
        return cls(tuple(field.name for field in fields(kind)), rows, shown=shown)

    @classmethod
    def properties(cls, *results: DataclassInstance) -> StatementResult:
        """Return a result with a row for every non-empty field of some dataclasses."""
        values = {name: value for result in results for name, value in plain(result).items()}
        return cls(("property", "value"), tuple((name, value) for name, value in values.items() if value not in (None, [], "")))


@dataclass(slots=True)
class SqlSession:
    """The context of statements. ``catalog`` and ``database`` apply to short names, and are changed by USE.

    ``refresh`` runs one refresh to its end, ``create`` one CREATE TABLE AS, ``query`` the plan of a read-only query; see
    :mod:`~airflow_dynamic_tables.services.ctas.selecting`. ``owner`` is the display name of who runs them.
    """

    project: Project
    workspace: Workspace
    refresh: Callable[[RefreshRequest], Version | Skipped]
    create: Callable[[WantedTable, Decision], Created]
    query: Run
    owner: str
    catalog: str
    database: str

    @classmethod
    def opened(
        cls,
        project: Project,
        workspace: Workspace,
        refresh: Callable[[RefreshRequest], Version | Skipped],
        create: Callable[[WantedTable, Decision], Created],
        query: Run,
        owner: str,
    ) -> SqlSession:
        """Open a session in the default database of the default catalog."""
        scope = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)
        return cls(project, workspace, refresh, create, query, owner, *scope)

    def table(self, name: Name) -> TableIdentifier:
        """Return the full name of a table.

        :raises ConfigurationError: if the name is invalid.
        """
        identifier = TableIdentifier.completed(name.parts, self.catalog, self.database)
        check_names(identifier.catalog, identifier.database, identifier.table)
        return identifier

    def database_named(self, name: Name | None) -> tuple[str, str]:
        """Return the catalog and database of a name; without a name, the current ones."""
        parts = name.parts if name else (self.database,)
        catalog, database = parts if len(parts) == 2 else (self.catalog, *parts)
        return catalog, database

    def use(self, catalog: str | None, database: str | None) -> None:
        """Change the current database, or change the current catalog and use its default database.

        :raises CatalogNotFoundError: if there is no such catalog.
        :raises DatabaseNotFoundError: if there is no such database.
        """
        chosen = catalog or self.catalog
        opened = self.workspace.readable(chosen)
        wanted = database or self.workspace.catalogs.default_database
        if database is not None and not opened.database_exists(database):
            known = ", ".join(opened.list_databases()) or "none"
            raise DatabaseNotFoundError(f"There is no database {join_name(chosen, database)}; catalog {chosen} has: {known}.")
        self.catalog = chosen
        self.database = wanted
