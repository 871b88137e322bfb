"""Applying differences: what is declared becomes what is deployed. Again, it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.services.changing.registration import Registration, register
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.workspace import Workspace

Refresh = Callable[[DynamicTable], Version | Skipped]
"""Makes all rows of a table anew, by Spark."""


class Outcome(StrEnum):
    """What became of a difference."""

    UNCHANGED = "UNCHANGED"
    REGISTERED = "REGISTERED"
    REFRESHED = "REFRESHED"
    NOT_DONE = "NOT_DONE"

    @property
    def words(self) -> str:
        """As a person reads it."""
        return self.value.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one table; ``detail`` says what is left to do, or why nothing was done. ``version`` was made by it."""

    identifier: TableIdentifier
    change: Change
    outcome: Outcome
    detail: str | None = None
    version: int | None = None


def apply(
    workspace: Workspace, found: Difference, table: DynamicTable, *, takes_over: bool = False, refresh: Refresh | None = None
) -> Applied:
    """Carry out what is different about a table.

    :param takes_over: whether the table is taken from another deployment.
    :param refresh: makes the rows that the definition means now; without it that is left to refreshes, and nothing is done that
        these could not do.
    """
    try:
        return _applied(workspace, found, table, takes_over=takes_over, refresh=refresh)
    except DynamicTableError as error:
        return Applied(found.identifier, found.change, Outcome.NOT_DONE, str(error))


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
        return Applied(found.identifier, change, Outcome.NOT_DONE, why_not)
    is_same = change is Change.UNCHANGED and found.claimed is None
    registration = Registration.UNCHANGED
    if not is_same or table.scheduler is not None:
        registration = register(workspace, table, takes_over=takes_over)
    if change.makes_other_rows and refresh is not None:
        made = refresh(table)
        if isinstance(made, Skipped):
            return Applied(found.identifier, change, Outcome.NOT_DONE, str(made.reason))
        return Applied(found.identifier, change, Outcome.REFRESHED, version=made.number)
    outcome = Outcome.UNCHANGED if registration is Registration.UNCHANGED else Outcome.REGISTERED
    return Applied(found.identifier, change, outcome, _LEFT.get(change))


_LEFT = {
    Change.NEW: "its first refresh makes the rows",
    Change.COLUMNS: "each refresh fills the new columns of what it replaces; apply --refresh, or a full refresh, all",
    Change.DATA: "each refresh makes the rows of what it replaces; apply --refresh, or a full refresh, all",
}
"""What is left for a refresh."""
