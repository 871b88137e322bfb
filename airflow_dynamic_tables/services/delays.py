"""Delays: the table upstream at which a delay began, since when, and who or what must act on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.status import LOST, TableStatus


class DelayCause(StrEnum):
    """Why a table is not refreshed in time."""

    SUSPENDED = "SUSPENDED"
    QUARANTINED = "QUARANTINED"
    FAILED = "FAILED"
    RUNNING = "RUNNING"
    NEVER_REFRESHED = "NEVER_REFRESHED"
    LATE = "LATE"


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of a table."""

    identifier: str
    stopped: str | None
    """The first table upstream that stopped, or the table itself; null: none of them has stopped."""
    cause: DelayCause | None = None
    since: datetime | None = None
    """The time up to which that table is fresh; null: up to none."""
    why: str = ""
    """The reason of its suspension, or the error of its last refresh."""
    turn: str = ""
    """Who or what must act now."""
    path: tuple[str, ...] = ()
    """The tables from that one down to the table asked for."""


_TURNS = {
    DelayCause.SUSPENDED: "A user resumes {table}.",
    DelayCause.QUARANTINED: "A user publishes or aborts the refresh of {table} that is in quarantine.",
    DelayCause.FAILED: "The owner of {table} corrects the error; its next refresh makes up for it.",
    DelayCause.RUNNING: "A refresh of {table} is running.",
    DelayCause.NEVER_REFRESHED: "The scheduler runs the first refresh of {table}.",
    DelayCause.LATE: "The scheduler runs the refresh of {table}.",
}


def find_delay(
    table: TableIdentifier,
    statuses: Mapping[TableIdentifier, TableStatus],
    reads: Mapping[TableIdentifier, Iterable[TableIdentifier]],
) -> Delay:
    """Return the delay of a table: the farthest table upstream that stopped, over tables that have all stopped.

    :param statuses: those of the table and of the tables upstream; others are taken as not stopped.
    :param reads: the tables that each table reads.
    """
    paths: dict[TableIdentifier, tuple[TableIdentifier, ...]] = {table: (table,)} if _is_stopped(statuses[table]) else {}
    waiting = list(paths)
    farthest = table
    for name in waiting:
        farthest = name
        for parent in sorted(reads.get(name, ()), key=str):
            if parent not in paths and parent in statuses and _is_stopped(statuses[parent]):
                paths[parent] = (parent, *paths[name])
                waiting.append(parent)
    if not paths:
        return Delay(str(table), None)
    status = statuses[farthest]
    cause = _cause(status)
    return Delay(
        identifier=str(table),
        stopped=str(farthest),
        cause=cause,
        since=status.fresh_until,
        why=status.suspended_because or status.last_error or "",
        turn=_TURNS[cause].format(table=farthest),
        path=tuple(map(str, paths[farthest])),
    )


def _is_stopped(status: TableStatus) -> bool:
    is_waiting = status.job_state is JobState.SUSPENDED or status.last_refresh in LOST
    return is_waiting or bool(status.late) or status.version is None


def _cause(status: TableStatus) -> DelayCause:
    if status.job_state is JobState.SUSPENDED:
        return DelayCause.SUSPENDED
    if status.last_refresh == RefreshState.QUARANTINED:
        return DelayCause.QUARANTINED
    if status.last_refresh == RefreshState.RUNNING:
        return DelayCause.RUNNING
    if status.last_refresh in LOST:
        return DelayCause.FAILED
    return DelayCause.NEVER_REFRESHED if status.version is None else DelayCause.LATE
