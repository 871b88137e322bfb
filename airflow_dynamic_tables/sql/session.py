"""A session: what statements work on, and which catalog and database short names are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name
from airflow_dynamic_tables.core.results import plain
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.statements.values import Name
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError
from airflow_dynamic_tables.services.creating.answering import Run
from airflow_dynamic_tables.services.creating.deciding import Decision
from airflow_dynamic_tables.services.creating.wanted import Created, WantedTable
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StatementResult:
    """Rows, each with a value for every column, and a remark on them. A terminal shows the columns that ``shown`` names."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    note: str | None = None
    shown: tuple[str, ...] = ()

    @classmethod
    def one(cls, **values: object) -> StatementResult:
        """One row."""
        return cls(tuple(values), (tuple(values.values()),))

    @classmethod
    def of(cls, result: Any, *shown: str, note: str | None = None) -> StatementResult:
        """One row with a column for every field of a dataclass that a service returned."""
        row = plain(result)
        return cls(tuple(row), (tuple(row.values()),), note, shown)

    @classmethod
    def properties(cls, *results: Any) -> StatementResult:
        """A row for every field of some dataclasses that has a value."""
        values = {name: value for result in results for name, value in plain(result).items()}
        return cls(("property", "value"), tuple((name, value) for name, value in values.items() if value not in (None, [], "")))


@dataclass(slots=True)
class SqlSession:
    """What statements work on; ``catalog`` and ``database`` are those of names that leave them out, and USE changes them.

    ``refresh`` runs one refresh to its end, ``create`` one CREATE TABLE AS, ``query`` the plan of a query that only reads; see
    :mod:`~airflow_dynamic_tables.services.creating.answering`. ``owner`` is who runs them, for people.
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
        """A session that begins in the default database of the default catalog."""
        scope = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)
        return cls(project, workspace, refresh, create, query, owner, *scope)

    def table(self, name: Name) -> TableIdentifier:
        """A name in full.

        :raises ConfigurationError: when it may not be one.
        """
        identifier = TableIdentifier.completed(name.parts, self.catalog, self.database)
        check_names(identifier.catalog, identifier.database, identifier.table)
        return identifier

    def database_named(self, name: Name | None) -> tuple[str, str]:
        """Catalog and database of a name; of none, the present ones."""
        parts = name.parts if name else (self.database,)
        catalog, database = parts if len(parts) == 2 else (self.catalog, *parts)
        return catalog, database

    def use(self, catalog: str | None, database: str | None) -> None:
        """Let short names be of another database, or of the default database of another catalog.

        :raises CatalogNotFoundError: when there is no such catalog.
        :raises DatabaseNotFoundError: when there is no such database.
        """
        chosen = catalog or self.catalog
        opened = self.workspace.readable(chosen)
        wanted = database or self.workspace.catalogs.default_database
        if database is not None and not opened.database_exists(database):
            known = ", ".join(opened.list_databases()) or "none"
            raise DatabaseNotFoundError(f"There is no database {join_name(chosen, database)}; catalog {chosen} has: {known}.")
        self.catalog = chosen
        self.database = wanted
