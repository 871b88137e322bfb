"""What one request works with: who asks, a workspace, what is declared; and the question whether the caller may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Refresher, Right
from airflow_dynamic_tables.api.declared import Declared
from airflow_dynamic_tables.api.pool import Workspaces
from airflow_dynamic_tables.api.questions import parsed_name
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.normalised import restored
from airflow_dynamic_tables.exceptions import ConflictError, ForbiddenError, InvalidFieldError, NotFoundError, TableNotFoundError
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Gateway:
    """What an app is made of.

    ``at_once`` requests are answered at once, and ``waiting`` more wait; others are told to come back. ``as_caller`` gives what
    the services ask of others the rights of the caller.
    """

    workspaces: Workspaces
    declared: Declared
    access: Access
    refresher: Refresher
    at_once: int = 8
    waiting: int = 100
    as_caller: Callable[[Workspace, Caller], Workspace] = lambda workspace, _caller: workspace

    @classmethod
    def of(
        cls,
        open_workspace: Callable[[], Workspace],
        open_project: Callable[[], Project | None],
        access: Access,
        refresher: Refresher,
    ) -> Gateway:
        """A gateway that opens workspaces and finds the project when it needs them."""
        return cls(Workspaces(open_workspace), Declared(open_project), access, refresher)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table that the caller may do with what was asked: as it is declared and as its catalog has it, one at least."""

    identifier: TableIdentifier
    definition: DynamicTable | None
    entry: CatalogDynamicTable | None

    @property
    def declaration(self) -> DynamicTable:
        """The definition; where there is no folder of definitions, the one that the catalog keeps.

        :raises ConflictError: when it keeps none.
        """
        if self.definition is not None:
            return self.definition
        if self.entry is None or self.entry.definition is None:
            raise ConflictError(f"Nobody declares {self.identifier}, and its catalog does not keep how it was declared.")
        return restored(self.entry.definition)

    @property
    def upstream(self) -> tuple[TableIdentifier, ...]:
        """What it reads directly; nothing, when nobody declares it and its catalog does not keep how it was declared."""
        if self.definition is not None:
            return self.definition.upstream
        kept = self.entry.definition if self.entry is not None else None
        return tuple(TableIdentifier.parse(name) for name in kept["resolved"]["upstream"]) if kept else ()


@dataclass(frozen=True, slots=True)
class Desk:
    """One request."""

    gateway: Gateway
    caller: Caller
    workspace: Workspace

    def table(self, name: str, right: Right) -> KnownTable:
        """A table, once it is clear that the caller may.

        :raises InvalidFieldError: when that is no name.
        :raises ForbiddenError: when the caller may not; whether the table exists is not told.
        :raises TableNotFoundError: when it is neither declared nor in a catalog.
        """
        return self.tables([_parsed(name)], right)[0]

    def permitted(self, name: str, right: Right) -> TableIdentifier:
        """As :meth:`table`, whether or not there is such a table."""
        known = self.known(_parsed(name))
        self._check([known], right)
        return known.identifier

    def deployed(self, name: str, right: Right) -> TableIdentifier:
        """As :meth:`table`, of a table that its catalog has.

        :raises TableNotFoundError: when it is only declared.
        """
        known = self.table(name, right)
        if known.entry is None:
            raise TableNotFoundError(f"{known.identifier} is declared, but not in its catalog yet: its first refresh makes it.")
        return known.identifier

    def tables(self, identifiers: Iterable[TableIdentifier], right: Right) -> list[KnownTable]:
        """Several tables, in their order; as :meth:`table`."""
        known = [self.known(identifier) for identifier in identifiers]
        self._check(known, right)
        for table in known:
            if table.definition is None and table.entry is None:
                raise TableNotFoundError(f"Neither a definition nor a catalog has {table.identifier}.")
        return known

    def every_table(self, catalog: str | None = None, database: str | None = None) -> Iterator[KnownTable]:
        """Every table that is declared, and every one that a catalog has; whatever the caller may.

        :param catalog: only those of that catalog; as ``database``.
        :raises CatalogUnavailableError: when a catalog cannot be asked.
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
        """Whether the caller may look at all of them, whether or not they exist (any more)."""
        known = [self.known(identifier) for identifier in identifiers]
        return len(self.readable(known)) == len(known)

    def readable(self, tables: Iterable[KnownTable]) -> list[KnownTable]:
        """Those that the caller may look at."""
        asked = list(tables)
        may = self.gateway.access.allowed(self.caller, Right.READ, [guarded(table) for table in asked])
        return [table for table in asked if table.identifier in may]

    def hidden(self, names: Iterable[TableIdentifier]) -> set[TableIdentifier]:
        """The dynamic tables among these that the caller may not look at."""
        wanted = set(names)
        managed = [one for one in self.every_table() if one.identifier in wanted]
        return {one.identifier for one in managed} - {one.identifier for one in self.readable(managed)}

    def _check(self, tables: Sequence[KnownTable], right: Right) -> None:
        may = self.gateway.access.allowed(self.caller, right, [guarded(table) for table in tables])
        for table in tables:
            if table.identifier not in may:
                raise ForbiddenError(f"You may not {right} {table.identifier}; ask whoever gives out rights to it.")

    def known(self, identifier: TableIdentifier) -> KnownTable:
        """What is known of a table, whatever the caller may."""
        return known_table(self.gateway.declared, self.workspace, identifier)


def known_table(declared: Declared, workspace: Workspace, identifier: TableIdentifier) -> KnownTable:
    """A table as it is declared and as its catalog has it; perhaps neither."""
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
    """The table, and the workflow whose rights decide: as declared, else as deployed."""
    workflow_id = table.identifier.workflow_id
    if table.definition is not None:
        workflow_id = table.definition.workflow_id
    elif table.entry is not None:
        workflow_id = table.entry.refresh_handler.job_detail.get("workflowId") or workflow_id
    return GuardedTable(table.identifier, workflow_id)


def _open_desk(request: Request) -> Iterator[Desk]:
    gateway: Gateway = request.app.state.gateway
    with gateway.workspaces.lent() as workspace:
        caller: Caller = request.state.caller
        yield Desk(gateway, caller, gateway.as_caller(workspace, caller))


AtDesk = Annotated[Desk, Depends(_open_desk)]
"""A route's parameter: everything that it works with."""
