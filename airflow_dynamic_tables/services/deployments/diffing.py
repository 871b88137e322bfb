"""Differences between declared and deployed tables, and their application.

A comparison takes one call per database and one read of each changed table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.schema import TableLayout
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.changed_columns import ALL, NONE, Touched, changed_columns, touched_columns
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, DynamicTableError, SchemaEvolutionError
from airflow_dynamic_tables.services.deployments import comparing, values
from airflow_dynamic_tables.services.deployments.comparing import Deployed
from airflow_dynamic_tables.services.deployments.values import Change, Cost, Difference, FieldChange
from airflow_dynamic_tables.services.lifecycle.registration import Registration, check_format, register
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.tables.entries import (
    ROWS_BEFORE,
    Deployment,
    claimed,
    deployed_by,
    is_declared_elsewhere,
    own_deployment,
    rival,
)
from airflow_dynamic_tables.services.workspace import Workspace

_NEXT = {
    Change.NEW: "apply registers it, its first refresh makes the rows",
    Change.METADATA: "apply writes it into the catalog, without Spark",
    Change.COLUMNS: "apply registers it, each refresh fills the new columns of what it replaces; apply --refresh all",
    Change.DATA: "apply registers it, each refresh makes the rows of what it replaces; apply --refresh all",
    Change.REBUILD: "apply --refresh builds it again beside the old rows, and swaps them in one step",
    Change.REMOVED: "it keeps its rows, which are not refreshed, until dynamic-tables drop",
}
"""The effect of applying a change, and the work that is left."""

_IN_NO_STEP = "nothing does it in one step: drop the table first, or declare the new one by another name"
"""The remedy if the table cannot be rebuilt in place."""


def differences(
    workspace: Workspace, definitions: Definitions, tables: Sequence[DynamicTable] | None = None, *, is_complete: bool = True
) -> list[Difference]:
    """Return the difference of every table in upstream order, followed by tables that are no longer declared.

    An unavailable catalog does not hide the tables of others.

    :param tables: compare only these, including external changes of each table; undeclared tables are omitted then.
    :param is_complete: whether these are all definitions; if some are invalid, it is unknown which tables they declare.
    """
    look = _Look(workspace, definitions, is_thorough=tables is not None)
    found = [look.at(table) for table in (definitions.topological() if tables is None else tables)]
    return [*found, *look.removed()] if tables is None and is_complete else found


def no_longer_declared(workspace: Workspace, definitions: Definitions, root: Path) -> list[TableIdentifier]:
    """Return the tables that are no longer declared, deployed by this or an unknown installation; sorted.

    An unavailable catalog does not hide the tables of others.

    :param definitions: all definitions of the installation, without mistakes that hide one.
    :param root: their file or folder. A table whose file is elsewhere and still names it is declared by other definitions.
    """
    look = _Look(workspace, definitions, is_thorough=False)
    for table in definitions.tables.values():
        with suppress(CatalogError, ConfigurationError):
            look.entry(table)
    return [one for one, owner in look.undeclared() if owner is None or not is_declared_elsewhere(owner, one, root)]


class _Look:
    """One comparison with the deployed tables."""

    def __init__(self, workspace: Workspace, definitions: Definitions, *, is_thorough: bool) -> None:
        self._workspace = workspace
        self._is_thorough = is_thorough
        self._definitions = definitions
        self._deployed = Deployed(workspace)
        self._downstream = Downstream(definitions)
        self._followed: set[TableIdentifier] = set()
        """Former names under which declared tables are deployed."""

    @cached_property
    def _installation(self) -> str:
        return self._workspace.ledger.installation()

    @cached_property
    def _restored(self) -> frozenset[TableIdentifier]:
        """Tables whose version was created by a rollback, possibly with columns that the definition does not have."""
        tables = self._definitions.tables.values()
        names = {name for table in tables for name in (table.identifier, table.former_name()) if name is not None}
        latest = self._workspace.ledger.latest(names)
        return frozenset(name for name, last in latest.items() if last.action == RefreshAction.ROLLBACK)

    def at(self, table: DynamicTable) -> Difference:
        """Return the difference of a table."""
        place = f"{table.path}:{table.line}"
        try:
            entry, here = self.entry(table)
            if entry is None:
                return self._said(Difference(table.identifier, Change.NEW, place))
            found = self._compared(entry, table, here)
        except (CatalogError, ConfigurationError) as error:
            return Difference(table.identifier, Change.UNKNOWN, place, reason=str(error))
        own = own_deployment(self._installation, table)
        other = rival(entry, table, own)
        told = None if other is None else claimed(table.identifier, other, own)
        return self._said(replace(found, place=place, claimed=told))

    def entry(self, table: DynamicTable) -> tuple[CatalogDynamicTable | None, TableIdentifier]:
        """Return the entry of a table under its current or former name, and that name."""
        entry = self._deployed.entry(table.identifier)
        former = table.former_name() if entry is None else None
        if former is None or (followed := self._deployed.entry(former)) is None:
            return entry, table.identifier
        self._followed.add(former)
        return followed, former

    def removed(self) -> Iterator[Difference]:
        """See :meth:`undeclared`."""
        for identifier, owner in self.undeclared():
            reason = f"it was deployed from {owner.file}" if owner is not None else None
            yield self._said(Difference(identifier, Change.REMOVED, reason=reason))

    def undeclared(self) -> Iterator[tuple[TableIdentifier, Deployment | None]]:
        """Yield the tables that are no longer declared, deployed by this or an unknown installation, with their deployments.

        The declared tables must have been compared before.
        """
        declared = self._definitions.tables
        catalogs = {name.catalog for name in declared} | set(self._workspace.catalogs.names())
        for identifier, entry in self._deployed.everything(catalogs):
            owner = deployed_by(entry.definition)
            is_ours = owner is None or owner.installation == self._installation
            if is_ours and identifier not in declared and identifier not in self._followed:
                yield identifier, owner

    def _said(self, found: Difference) -> Difference:
        return replace(found, next=_NEXT.get(found.change) if found.is_possible else _IN_NO_STEP)

    def _compared(self, entry: CatalogDynamicTable, table: DynamicTable, here: TableIdentifier) -> Difference:
        changed = comparing.changed_fields(entry, table)
        deciding = comparing.other_rows(entry, table, changed) if changed else ()
        unmade = not deciding and self._is_unmade(entry, here)
        same = Difference(
            table.identifier,
            Change.METADATA if changed else Change.UNCHANGED,
            fields=changed,
            query=comparing.query_difference(entry, table) if changed else "",
            reason=f"it is renamed from {here}, with its data" if here != table.identifier else None,
        )
        if not deciding and not unmade and not self._is_thorough and here not in self._restored:
            return same
        layout = self._workspace.table(here, entry.format).layout()
        if layout is None:
            return same  # the table has no rows yet
        change, obstacle = self._fitted(layout, entry, table, here)
        if change is not Change.REBUILD and not deciding and not unmade:
            return same
        why = f"{', '.join(deciding)} changed" if deciding else "it is registered, no refresh has made its rows since"
        columns = comparing.column_changes(layout, entry, table)
        touched = _touched(entry, table, changed, deciding)
        gone = frozenset(column.name.lower() for column in columns if column.deployed is not None)
        return replace(
            same,
            change=change,
            reason=obstacle or why,
            is_possible=change is not Change.REBUILD or comparing.can_be_rebuilt(layout, entry, table),
            columns=columns,
            downstream=self._downstream.of(table.identifier, None if touched is None else touched | gone),
            cost=self._cost(here),
        )

    def _fitted(
        self, layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable, here: TableIdentifier
    ) -> tuple[Change, str | None]:
        """See :func:`comparing.fitted`; a different format does not fit, either."""
        try:
            check_format(self._workspace, here, entry.format, table.format)
        except SchemaEvolutionError as error:
            return Change.REBUILD, str(error)
        return comparing.fitted(layout, entry, table)

    def _is_unmade(self, entry: CatalogDynamicTable, here: TableIdentifier) -> bool:
        """Return whether the definition was registered, but the table still has the version from before."""
        before = (entry.definition or {}).get(ROWS_BEFORE)
        if before is None:
            return False
        current = self._workspace.table(here, entry.format).current()
        return current is not None and before in (current.token, current.snapshot)

    def _cost(self, identifier: TableIdentifier) -> Cost:
        catalog = self._workspace.readable(identifier.catalog)
        statistics = catalog.get_table_statistics(identifier.path)
        entry = catalog.get_table(identifier.path)
        is_partitioned = isinstance(entry, CatalogDynamicTable) and entry.is_partitioned
        partitions = len(catalog.list_partitions(identifier.path)) if is_partitioned else None
        return Cost(statistics.rows, statistics.bytes, statistics.files, partitions)


def _touched(entry: CatalogDynamicTable, table: DynamicTable, changed: Iterable[FieldChange], deciding: Sequence[str]) -> Touched:
    """Return the columns of a table that may have other values; all of them unless only its query changed."""
    if not changed or deciding != (comparing.THE_QUERY,):
        return ALL
    return changed_columns(entry.expanded_query, table.expanded_query)


class Downstream:
    """Downstream relations among all definitions; created once for many changed tables."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    @cached_property
    def _places(self) -> dict[TableIdentifier, int]:
        return {table.identifier: place for place, table in enumerate(self._definitions.topological())}

    @cached_property
    def _readers(self) -> dict[TableIdentifier, list[TableIdentifier]]:
        readers: dict[TableIdentifier, list[TableIdentifier]] = {}
        for table in self._definitions.tables.values():
            for parent in table.upstream:
                readers.setdefault(parent, []).append(table.identifier)
        return readers

    def of(self, identifier: TableIdentifier, columns: Touched) -> tuple[values.Touched, ...]:
        """Return the affected direct and indirect readers of a table in upstream order.

        :param columns: the columns of the table that may have other values.
        """
        touched: dict[TableIdentifier, Touched] = {identifier: columns}
        for name in self.below(identifier):
            touched[name] = self._touched(name, touched)
        del touched[identifier]
        return tuple(
            values.Touched(name, None if found is None else tuple(sorted(found)))
            for name, found in touched.items()
            if found != NONE
        )

    def _touched(self, name: TableIdentifier, touched: dict[TableIdentifier, Touched]) -> Touched:
        table = self._definitions.tables[name]
        found: frozenset[str] = frozenset()
        for parent in table.upstream:
            more = touched_columns(table.expanded_query, touched.get(parent, NONE))
            if more is None:
                return ALL
            found |= more
        return found

    def below(self, identifier: TableIdentifier) -> Iterable[TableIdentifier]:
        """Return the direct and indirect readers of a table in upstream order."""
        found: set[TableIdentifier] = set()
        waiting = [identifier]
        while waiting:
            new = set(self._readers.get(waiting.pop(), ())) - found
            found |= new
            waiting.extend(new)
        return sorted(found - {identifier}, key=self._places.__getitem__)


Refresh = Callable[[DynamicTable], Version | Skipped]
"""Replaces all rows of a table with Spark."""


class ApplyOutcome(StrEnum):
    """The result of applying a difference."""

    UNCHANGED = "UNCHANGED"
    REGISTERED = "REGISTERED"
    REFRESHED = "REFRESHED"
    NOT_DONE = "NOT_DONE"

    @property
    def words(self) -> str:
        """The value for display."""
        return self.value.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying one table; ``detail`` is the remaining work, or why nothing was done; ``version`` is the new one."""

    identifier: TableIdentifier
    change: Change
    outcome: ApplyOutcome
    detail: str | None = None
    version: int | None = None


def apply(
    workspace: Workspace, found: Difference, table: DynamicTable, *, takes_over: bool = False, refresh: Refresh | None = None
) -> Applied:
    """Apply the difference of a table.

    :param takes_over: take the table over from another deployment.
    :param refresh: replaces the rows by those of the new definition. Without it this is left to later refreshes, and changes that
        these cannot make are not applied.
    """
    try:
        return _applied(workspace, found, table, takes_over=takes_over, refresh=refresh)
    except DynamicTableError as error:
        return Applied(found.identifier, found.change, ApplyOutcome.NOT_DONE, str(error))


def _applied(
    workspace: Workspace, found: Difference, table: DynamicTable, *, takes_over: bool, refresh: Refresh | None
) -> Applied:
    change = found.change
    why_not: str | None = None
    if found.claimed is not None and not takes_over:
        why_not = found.claimed
    elif change is Change.UNKNOWN or not found.is_possible:
        why_not = found.reason
    elif change is Change.REBUILD and refresh is None:
        why_not = f"{found.reason} It takes apply --refresh."
    if why_not is not None:
        return Applied(found.identifier, change, ApplyOutcome.NOT_DONE, why_not)
    is_same = change is Change.UNCHANGED and found.claimed is None
    registration = Registration.UNCHANGED
    if not is_same or table.scheduler is not None:
        registration = register(workspace, table, takes_over=takes_over)
    if change.makes_other_rows and refresh is not None:
        made = refresh(table)
        if isinstance(made, Skipped):
            return Applied(found.identifier, change, ApplyOutcome.NOT_DONE, str(made.reason))
        return Applied(found.identifier, change, ApplyOutcome.REFRESHED, version=made.number)
    outcome = ApplyOutcome.UNCHANGED if registration is Registration.UNCHANGED else ApplyOutcome.REGISTERED
    return Applied(found.identifier, change, outcome, _LEFT.get(change))


_LEFT = {
    Change.NEW: "its first refresh makes the rows",
    Change.COLUMNS: "each refresh fills the new columns of what it replaces; apply --refresh, or a full refresh, all",
    Change.DATA: "each refresh makes the rows of what it replaces; apply --refresh, or a full refresh, all",
}
"""The work that is left for refreshes."""
