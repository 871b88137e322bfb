"""Waiting for parents: each must be fresh up to its own latest tick at or before the schedule time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.cron import previous_tick
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.wall_clock import elapsed
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import UpstreamError
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.workspace import Workspace

_NOT_WELL = {
    RefreshState.FAILED: "its last refresh failed",
    RefreshState.ABORTED: "its last refresh failed",
    RefreshState.UNDONE: "its last version was undone by another engine",
    RefreshState.QUARANTINED: "its last refresh is in quarantine",
}


@dataclass(frozen=True, slots=True)
class Parent:
    """A dynamic table that another one reads, and its schedule: without ``cron``, only updates of assets refresh it."""

    identifier: TableIdentifier
    format: str
    cron: str | None
    timezone: str
    freshness: Freshness

    def required(self, schedule_time: datetime) -> datetime:
        """Up to when it has to be fresh for a refresh at that time: its latest tick; else its own promise counts."""
        if self.cron is None:
            return elapsed(schedule_time, -self.freshness.period)
        return previous_tick(self.cron, self.timezone, schedule_time)


@dataclass(frozen=True, slots=True)
class PendingParent:
    """A parent that is not fresh enough: up to when it should be and is, and how its last refresh ended if not well."""

    identifier: TableIdentifier
    required: datetime
    data_timestamp: datetime | None
    failed: RefreshState | None


def parents_of(names: Iterable[TableIdentifier], tables: Mapping[TableIdentifier, DynamicTable]) -> tuple[Parent, ...]:
    """Those of the named tables that are dynamic and that a schedule, or updates of assets, refresh."""
    dynamic = (tables[identifier] for identifier in names if identifier in tables)
    return tuple(
        Parent(parent.identifier, parent.format, parent.cron, parent.timezone, parent.freshness)
        for parent in dynamic
        if parent.cron is not None or parent.on is not None
    )


def pending(workspace: Workspace, parents: Iterable[Parent], schedule_time: datetime) -> tuple[PendingParent, ...]:
    """The parents that a refresh at that schedule time still has to wait for; empty when it can start."""
    checked = (_check(workspace, parent, schedule_time) for parent in parents)
    return tuple(parent for parent in checked if parent is not None)


def _check(workspace: Workspace, parent: Parent, schedule_time: datetime) -> PendingParent | None:
    required = parent.required(schedule_time)
    version = workspace.table(parent.identifier, parent.format).current()
    fresh = version.data_timestamp if version is not None else None
    if fresh is not None and fresh >= required:
        return None
    last = next(iter(workspace.ledger.list_refreshes(parent.identifier, limit=1)), None)
    ended = last.state if last is not None and last.schedule_time >= required else None
    return PendingParent(parent.identifier, required, fresh, ended if ended in _NOT_WELL else None)


def waited_too_long(waiting: Iterable[PendingParent]) -> UpstreamError:
    """The error of a refresh that waited long enough: UPSTREAM_FAILED when a parent failed, else UPSTREAM_LATE."""
    waiting = tuple(waiting)
    code = "UPSTREAM_FAILED" if any(parent.failed for parent in waiting) else "UPSTREAM_LATE"
    return UpstreamError(f"{code}: {what_is_missing(waiting)}.")


def what_is_missing(waiting: Iterable[PendingParent]) -> str:
    """What a refresh waits for, as a sentence without its full stop."""
    return "; ".join(
        f"{parent.identifier} must be fresh up to {parent.required.isoformat()} but "
        + (_NOT_WELL[parent.failed] if parent.failed else _freshness(parent))
        for parent in waiting
    )


def _freshness(parent: PendingParent) -> str:
    return (
        f"is so only up to {parent.data_timestamp.isoformat()}"
        if parent.data_timestamp
        else "has not been refreshed by schedule yet"
    )
