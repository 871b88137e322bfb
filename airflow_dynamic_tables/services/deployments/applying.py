"""Applying differences: registers or refreshes changed tables, and finds downstream tables with affected columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.lineage import ALL, NONE, Touched, touched_columns
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.services.deployments import values
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.lifecycle.registration import Registration, register
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.workspace import Workspace


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
