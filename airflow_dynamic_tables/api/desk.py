"""The context of a request: definitions, which are cached in memory, and a workspace lent from a pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Refresher, Right, required_right
from airflow_dynamic_tables.api.questions import parsed_name
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import restored
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConflictError,
    DynamicTableError,
    ForbiddenError,
    InvalidFieldError,
    NotFoundError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import Workspace

_LONGEST_SECONDS = 30.0
"""Maximum age of the cache; files that definitions reference (queries) are not checked if the definition files are unchanged."""


class AllDeclared(NamedTuple):
    """All tables without mistakes, and whether these are all tables."""

    definitions: Definitions
    is_complete: bool


_NOTHING = AllDeclared(Definitions(), is_complete=False)
"""Without a folder of definitions it is unknown which tables are declared."""


class _Loaded(NamedTuple):
    signature: object
    at: float
    declared: AllDeclared


class Declared:
    """The definitions of a project, reloaded when one of its files changes.

    :param opener: finds the project; returns ``None`` if there is no folder of definitions.
    """

    def __init__(self, opener: Callable[[], Project | None]) -> None:
        self._opener = opener
        self._loaded: _Loaded | None = None
        self._lock = Lock()

    def all(self) -> AllDeclared:
        """Return all tables; at most half a minute old where a definition reads its query from another file."""
        project = self._opener()
        if project is None:
            return _NOTHING
        with self._lock:
            signature = (project, project.signature())
            known = self._loaded
            if known is None or known.signature != signature or time.monotonic() - known.at > _LONGEST_SECONDS:
                definitions, mistakes = project.load()
                known = _Loaded(signature, time.monotonic(), AllDeclared(definitions, not mistakes))
                self._loaded = known
            return known.declared

    def table(self, identifier: TableIdentifier) -> DynamicTable | None:
        """Return one table as its files currently define it."""
        project = self._opener()
        return project.load_table(identifier).tables.get(identifier) if project is not None else None


_FRESH_SECONDS = 60.0
"""Maximum age of a pooled workspace; after that, changes to the catalogs file or to connections take effect."""


class _Open(NamedTuple):
    workspace: Workspace
    since: float


class Workspaces:
    """Pool that opens a workspace if none is idle. Catalog clients are not thread-safe, so a workspace is never shared."""

    def __init__(self, opener: Callable[[], Workspace]) -> None:
        self._opener = opener
        self._idle: list[_Open] = []
        self._lock = Lock()

    @contextmanager
    def lent(self) -> Iterator[Workspace]:
        """Lend a workspace for the duration of the body; it is not reused after an error."""
        lent = self._take()
        try:
            yield lent.workspace
        except CatalogUnavailableError:
            lent.workspace.close()
            raise
        except DynamicTableError:
            self._give_back(lent)
            raise
        except BaseException:
            lent.workspace.close()
            raise
        else:
            self._give_back(lent)

    def close(self) -> None:
        """Close the idle workspaces."""
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for one in idle:
            one.workspace.close()

    def _take(self) -> _Open:
        while True:
            with self._lock:
                lent = self._idle.pop() if self._idle else None
            if lent is None:
                return _Open(self._opener(), time.monotonic())
            if time.monotonic() - lent.since < _FRESH_SECONDS:
                return lent
            lent.workspace.close()

    def _give_back(self, lent: _Open) -> None:
        with self._lock:
            self._idle.append(lent)


@dataclass(frozen=True, slots=True)
class AppComponents:
    """The components of an app.

    ``at_once`` requests are processed concurrently and ``waiting`` more are queued; further ones are rejected and may be retried.
    ``as_caller`` restricts the calls of services to other systems to the rights of the caller. ``paused`` returns whether DAGs
    are paused, for many at once.
    """

    workspaces: Workspaces
    declared: Declared
    access: Access
    refresher: Refresher
    at_once: int = 8
    waiting: int = 100
    as_caller: Callable[[Workspace, Caller], Workspace] = lambda workspace, _caller: workspace
    paused: Callable[[Collection[str]], Mapping[str, bool]] = lambda _workflow_ids: {}

    @classmethod
    def of(
        cls,
        open_workspace: Callable[[], Workspace],
        open_project: Callable[[], Project | None],
        access: Access,
        refresher: Refresher,
    ) -> AppComponents:
        """Return a gateway that opens workspaces and finds the project on demand."""
        return cls(Workspaces(open_workspace), Declared(open_project), access, refresher)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table for which the caller has the requested right: as declared, as deployed, or both."""

    identifier: TableIdentifier
    definition: DynamicTable | None
    entry: CatalogDynamicTable | None

    @property
    def declaration(self) -> DynamicTable:
        """Return the definition; without a folder of definitions, the one that the catalog stores.

        :raises ConflictError: if the catalog stores none.
        """
        if self.definition is not None:
            return self.definition
        if self.entry is None or self.entry.definition is None:
            raise ConflictError(f"{self.identifier} is not declared, and its catalog does not keep how it was declared.")
        return restored(self.entry.definition)

    @property
    def upstream(self) -> tuple[TableIdentifier, ...]:
        """Return the direct upstream tables; empty if the table is not declared and its catalog does not store its definition."""
        if self.definition is not None:
            return self.definition.upstream
        kept = self.entry.definition if self.entry is not None else None
        return tuple(TableIdentifier.parse(name) for name in kept["resolved"]["upstream"]) if kept else ()


@dataclass(frozen=True, slots=True)
class Desk:
    """The context of one request, and the right to a table that its route requires."""

    gateway: AppComponents
    caller: Caller
    workspace: Workspace
    right: Right

    def table(self, name: str) -> KnownTable:
        """Return a table after checking the right of the caller.

        :raises InvalidFieldError: if the name is invalid.
        :raises ForbiddenError: if the caller lacks the right; the error does not reveal whether the table exists.
        :raises TableNotFoundError: if the table is neither declared nor in a catalog.
        """
        return self.tables([_parsed(name)])[0]

    def permitted(self, name: str) -> TableIdentifier:
        """Same as :meth:`table`, but the table does not have to exist."""
        known = self.known(_parsed(name))
        self._check([known])
        return known.identifier

    def deployed(self, name: str) -> TableIdentifier:
        """Same as :meth:`table`, for a table that must exist in its catalog.

        :raises TableNotFoundError: if the table is only declared.
        """
        known = self.table(name)
        if known.entry is None:
            raise TableNotFoundError(f"{known.identifier} is declared, but not in its catalog yet: its first refresh makes it.")
        return known.identifier

    def tables(self, identifiers: Iterable[TableIdentifier]) -> list[KnownTable]:
        """Same as :meth:`table`, for several tables; the order is kept."""
        known = [self.known(identifier) for identifier in identifiers]
        self._check(known)
        for table in known:
            if table.definition is None and table.entry is None:
                raise TableNotFoundError(f"Neither a definition nor a catalog has {table.identifier}.")
        return known

    def every_table(self, catalog: str | None = None, database: str | None = None) -> Iterator[KnownTable]:
        """Return every declared table and every table in a catalog, regardless of the rights of the caller.

        :param catalog: return only tables of this catalog; likewise ``database``.
        :raises CatalogUnavailableError: if a catalog is not available.
        """
        declared = self.gateway.declared.all().definitions.tables
        entries = {
            TableIdentifier(asked, place, name): entry
            for asked in sorted({name.catalog for name in declared} | set(self.workspace.catalogs.names()))
            if catalog in (None, asked)
            for place in self.workspace.readable(asked).list_databases()
            if database in (None, place)
            for name, entry in self.workspace.readable(asked).get_dynamic_tables(place).items()
        }
        for name in {**entries, **declared}:
            if catalog in (None, name.catalog) and database in (None, name.database):
                yield KnownTable(name, declared.get(name), entries.get(name))

    def may_read(self, identifiers: Sequence[TableIdentifier]) -> bool:
        """Return whether the caller may read all of the tables, including those that do not exist (any more)."""
        known = [self.known(identifier) for identifier in identifiers]
        return len(self.readable(known)) == len(known)

    def readable(self, tables: Iterable[KnownTable]) -> list[KnownTable]:
        """Return the tables that the caller may read."""
        asked = list(tables)
        may = self.gateway.access.allowed(self.caller, Right.READ, [guarded(table) for table in asked])
        return [table for table in asked if table.identifier in may]

    def hidden(self, names: Iterable[TableIdentifier] | None = None) -> set[TableIdentifier]:
        """Return the dynamic tables that the caller may not read, of all or among the names."""
        wanted = None if names is None else set(names)
        managed = [one for one in self.every_table() if wanted is None or one.identifier in wanted]
        return {one.identifier for one in managed} - {one.identifier for one in self.readable(managed)}

    def _check(self, tables: Sequence[KnownTable]) -> None:
        may = self.gateway.access.allowed(self.caller, self.right, [guarded(table) for table in tables])
        for table in tables:
            if table.identifier not in may:
                raise ForbiddenError(f"You may not {self.right} {table.identifier}; ask its administrator for access.")

    def known(self, identifier: TableIdentifier) -> KnownTable:
        """Return a table as declared and as deployed, regardless of the rights of the caller."""
        return known_table(self.gateway.declared, self.workspace, identifier)


def known_table(declared: Declared, workspace: Workspace, identifier: TableIdentifier) -> KnownTable:
    """Return a table as declared and as deployed in its catalog; both may be missing."""
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except NotFoundError:
        entry = None
    return KnownTable(identifier, declared.table(identifier), entry if isinstance(entry, CatalogDynamicTable) else None)


def _parsed(name: str) -> TableIdentifier:
    try:
        return parsed_name(name)
    except ValueError as error:
        raise InvalidFieldError("path.table", str(error)) from error


def guarded(table: KnownTable) -> GuardedTable:
    """Return the table with the workflow whose rights decide: the declared one, or else the deployed one."""
    workflow_id = table.identifier.workflow_id
    if table.definition is not None:
        workflow_id = table.definition.workflow_id
    elif table.entry is not None:
        workflow_id = table.entry.refresh_handler.job_detail.get("workflowId") or workflow_id
    return GuardedTable(table.identifier, workflow_id)


def _open_desk(request: Request) -> Iterator[Desk]:
    gateway: AppComponents = request.app.state.gateway
    with gateway.workspaces.lent() as workspace:
        caller: Caller = request.state.caller
        yield Desk(gateway, caller, gateway.as_caller(workspace, caller), required_right(request.scope["route"]))


AtDesk = Annotated[Desk, Depends(_open_desk)]
