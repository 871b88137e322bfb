"""Delays: the table upstream at which a delay began, since when, and who or what must act on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import reachable
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.status import TableState, TableStatus, overview, with_dags
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay of a table."""

    identifier: str
    stopped: str | None
    """The first table upstream that stopped, or the table itself; null: none of them has stopped."""
    cause: TableState | None = None
    """The state of that table."""
    since: datetime | None = None
    """The time up to which that table is fresh; null: up to none."""
    why: str = ""
    """The reason of its suspension, or the error of its last refresh."""
    turn: str = ""
    """Who or what must act now."""
    path: tuple[str, ...] = ()
    """The tables from that one down to the table asked for."""


_TURNS = {
    TableState.SUSPENDED: "A user resumes {table}.",
    TableState.QUARANTINED: "A user publishes or aborts the refresh of {table} that is in quarantine.",
    TableState.REJECTED: "The table stays as it is; the next scheduled refresh of {table} computes the rows again.",
    TableState.FAILED: "The owner of {table} corrects the error; its next refresh makes up for it.",
}


def delay_of(workspace: Workspace, definitions: Definitions, table: TableIdentifier) -> Delay:
    """Return the delay of a defined table, see :func:`find_delay`. The status of tables is that of the history."""
    reads = {name: each.upstream for name, each in definitions.tables.items()}
    entries = {name: workspace.find_entry(name) for name in (table, *reachable(table, reads)) if name in reads}
    statuses = with_dags(workspace, overview(workspace, entries, definitions.tables))
    return find_delay(table, dict(zip(entries, statuses, strict=True)), reads)


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
    return Delay(
        identifier=str(table),
        stopped=str(farthest),
        cause=status.state,
        since=status.fresh_until,
        why=status.suspended_because or status.last_error or "",
        turn=_turn(status).format(table=farthest),
        path=tuple(map(str, paths[farthest])),
    )


def _is_stopped(status: TableStatus) -> bool:
    return status.state in _TURNS or bool(status.late) or status.version is None


def _turn(status: TableStatus) -> str:
    if status.state in _TURNS:
        return _TURNS[status.state]
    if status.last_refresh == RefreshState.RUNNING:
        return "A refresh of {table} is running."
    return "A user unpauses the DAG of {table}." if status.dag_paused else "The scheduler runs the refresh of {table}."
