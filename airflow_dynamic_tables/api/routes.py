"""Routes that read and change tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from fastapi import Query

from airflow_dynamic_tables.api.access import Right, requires
from airflow_dynamic_tables.api.desk import AtDesk, Desk, KnownTable, guarded
from airflow_dynamic_tables.api.questions import (
    Drop,
    Limit,
    Name,
    Partition,
    QuarantineDecision,
    Resumption,
    Rollback,
    Suspension,
    TableFilter,
    Time,
)
from airflow_dynamic_tables.api.results import ResultRouter
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import ColumnOrigin, reachable
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import column_origins
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, InvalidFieldError, NotFoundError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.delays import Delay, find_delay
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Difference, FieldChange
from airflow_dynamic_tables.services.lifecycle.dropping import Dropped, drop, drop_if_exists
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.refresh.catching_up import with_catch_up
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.origins import Origin, origins
from airflow_dynamic_tables.services.refresh.partition_status import PartitionStatus, list_partitions
from airflow_dynamic_tables.services.refresh.preview import TablePlan, preview, statement
from airflow_dynamic_tables.services.refresh.requests import in_time_zone, latest_schedule_time, parse_partitions
from airflow_dynamic_tables.services.refresh.saved_costs import MOST_COMPARED, SavedCost, saved_costs
from airflow_dynamic_tables.services.status import TableDescription, TableStatus, overview, show_table, with_paused
from airflow_dynamic_tables.services.tables.entries import claimed, deployed_by, own_deployment
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.tables.source_reads import SourcePosition
from airflow_dynamic_tables.services.writes.quarantine import publish, reject

router = ResultRouter()


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of tables, sorted by name."""

    tables: tuple[TableStatus, ...]
    next: str | None
    """The value of `after` for the next page; null: this is the last page."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The latest refreshes of a table, newest first."""

    refreshes: tuple[Refresh, ...]


@dataclass(frozen=True, slots=True)
class SavedCostPage:
    """What the refreshes of a table saved by month, the latest month first."""

    months: tuple[SavedCost, ...]


@dataclass(frozen=True, slots=True)
class VersionPage:
    """The retained versions of a table, newest first."""

    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class PartitionPage:
    """The partitions of a table, in the order of their names."""

    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True, slots=True)
class OriginPage:
    """The refreshes that made the rows of a table, and the tables that they read; the table itself first."""

    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class LineageTable:
    """A table near another one."""

    identifier: str
    steps: int
    """The distance: negative upstream, positive downstream, 0 for the table asked for."""
    reads: tuple[str, ...]
    """The tables among these that it reads."""
    status: TableStatus | None
    """Null: it is a source."""


@dataclass(frozen=True, slots=True)
class TableLineage:
    """The tables upstream and downstream of a table, directly and transitively, as far as the caller may read them."""

    identifier: str
    upstream: tuple[str, ...]
    downstream: tuple[str, ...]
    ancestors: tuple[str, ...]
    descendants: tuple[str, ...]
    tables: tuple[LineageTable, ...]
    """The table, and those at most two steps away."""
    columns: Mapping[str, tuple[ColumnOrigin, ...]]
    """The columns of other tables that each column derives from; empty if the query is not analysed."""


@router.get("/v3/dynamic-tables", summary="List tables")
def tables(desk: AtDesk, asked: Annotated[TableFilter, Query()]) -> TablePage:
    """All tables that the caller may read, declared or deployed, sorted by name, with lag, last refresh and next refresh.

    Versions and times are those of the history. Changes by other engines are not detected here, but by the route of one table.
    """
    wanted = (one for one in desk.every_table(asked.catalog, asked.database) if _fits(one, asked))
    page = sorted(desk.readable(wanted), key=lambda table: str(table.identifier))[: asked.limit + 1]
    shown = page[: asked.limit]
    following = str(shown[-1].identifier) if len(page) > asked.limit else None
    return TablePage(tuple(_statuses(desk, shown).values()), following)


def _seen(desk: Desk, glances: Sequence[TableStatus]) -> list[TableStatus]:
    """Return short table records, without the parents that the caller may not read."""
    parents = sorted({parent.table for glance in glances for parent in glance.behind})
    known = [desk.known(TableIdentifier.parse(parent)) for parent in parents]
    readable = {str(table.identifier) for table in desk.readable(known)}
    return [
        replace(glance, behind=tuple(one for one in glance.behind if one.table in readable)) if glance.behind else glance
        for glance in glances
    ]


def _fits(table: KnownTable, asked: TableFilter) -> bool:
    if asked.name is not None and asked.name.lower() not in table.identifier.table.lower():
        return False
    if asked.workflow is not None and guarded(table).workflow_id != asked.workflow:
        return False
    if asked.job_state is not None and (table.entry is None or table.entry.refresh_handler.job_state is not asked.job_state):
        return False
    return str(table.identifier) > asked.after


@router.get("/v3/dynamic-tables/{table}", summary="Show a table")
def one_table(desk: AtDesk, table: Name) -> TableDescription:
    """One table, read from the table itself. A declared table without a refresh has neither columns nor versions."""
    known = desk.table(table)
    if known.entry is None:
        declared = known.declaration
        (glance,) = overview(desk.workspace, {known.identifier: None}, {known.identifier: declared})
        return TableDescription.of(glance, query=declared.query, comment=declared.comment)
    others = False if desk.gateway.declared.all().is_complete else None
    details = show_table(desk.workspace, known.identifier, 1, defined=known.definition is not None or others)
    entry = known.entry
    (glance,) = _seen(desk, [details.status])
    return TableDescription.of(
        glance,
        comment=entry.comment,
        columns=entry.columns,
        partition_keys=entry.partition_keys,
        query=entry.original_query,
        sources_read=_readable_sources(desk, details.sources),
    )


def _readable_sources(desk: Desk, sources: Sequence[SourcePosition]) -> tuple[SourcePosition, ...]:
    hidden = {str(name) for name in desk.hidden(TableIdentifier.parse(one.source) for one in sources)}
    return tuple(one for one in sources if one.source not in hidden)


@router.get("/v3/dynamic-tables/{table}/history", summary="List the latest refreshes of a table")
def history(desk: AtDesk, table: Name, limit: Limit = 20) -> HistoryPage:
    """Action, reason, result, rows, bytes, and the seconds of each step; newest first."""
    known = desk.table(table)
    return HistoryPage(tuple(desk.workspace.ledger.list_refreshes(known.identifier, limit)))


@router.get("/v3/dynamic-tables/{table}/saved", summary="Show what the refreshes of a table saved")
def saved(desk: AtDesk, table: Name) -> SavedCostPage:
    """The seconds and bytes of its latest 20,000 refreshes by month, beside those of the last complete refresh of the same
    definition.
    """
    known = desk.table(table)
    return SavedCostPage(tuple(saved_costs(desk.workspace.ledger.list_refreshes(known.identifier, MOST_COMPARED))))


@router.get("/v3/dynamic-tables/{table}/versions", summary="List the retained versions of a table")
def versions(desk: AtDesk, table: Name, limit: Limit = 20) -> VersionPage:
    """The versions that can still be read, newest first."""
    known = desk.table(table)
    if known.entry is None:
        return VersionPage(())
    kept = desk.workspace.table(known.identifier, known.entry.format).versions()
    return VersionPage(tuple(reversed(kept[-limit:])))


@router.get("/v3/dynamic-tables/{table}/lineage", summary="Show the lineage of a table")
def lineage(desk: AtDesk, table: Name) -> TableLineage:
    """The tables upstream and downstream, those at most two steps away with their status, and the origins of each column.

    Sources are always shown, dynamic tables only if the caller may read them.
    """
    known = desk.table(table)
    every = {one.identifier: one for one in desk.every_table()}
    reads = {name: one.upstream for name, one in every.items()}
    read_by = _reversed(reads)
    above = reachable(known.identifier, reads)
    below = reachable(known.identifier, read_by)
    hidden = desk.hidden(above | below)
    return TableLineage(
        identifier=str(known.identifier),
        upstream=_names(set(reads.get(known.identifier, ())) - hidden),
        downstream=_names(set(read_by.get(known.identifier, ())) - hidden),
        ancestors=_names(above - hidden),
        descendants=_names(below - hidden),
        tables=_near(desk, known.identifier, every, (reads, read_by), hidden),
        columns=_column_origins(desk, known, every, hidden),
    )


def _reversed(reads: Mapping[TableIdentifier, Iterable[TableIdentifier]]) -> dict[TableIdentifier, list[TableIdentifier]]:
    read_by: dict[TableIdentifier, list[TableIdentifier]] = {}
    for name, sources in reads.items():
        for source in sources:
            read_by.setdefault(source, []).append(name)
    return read_by


_STEPS = 2
"""Steps of lineage that are described by table."""


_Edges = Mapping[TableIdentifier, Iterable[TableIdentifier]]


def _near(
    desk: Desk,
    table: TableIdentifier,
    every: Mapping[TableIdentifier, KnownTable],
    edges: tuple[_Edges, _Edges],
    hidden: Set[TableIdentifier],
) -> tuple[LineageTable, ...]:
    """Return a table and those near it.

    :param edges: the tables that each table reads, and those that read it.
    """
    reads, read_by = edges
    steps = {table: 0}
    for sign, of_table in ((-1, reads), (1, read_by)):
        reached = {table}
        for step in range(1, _STEPS + 1):
            reached = {name for one in reached for name in of_table.get(one, ())} - steps.keys() - hidden
            steps |= dict.fromkeys(reached, sign * step)
    statuses = _statuses(desk, [every[name] for name in steps if name in every])
    return tuple(
        LineageTable(str(name), step, _names(steps.keys() & {*reads.get(name, ())}), statuses.get(name))
        for name, step in sorted(steps.items(), key=lambda item: (item[1], str(item[0])))
    )


def _statuses(desk: Desk, known: Sequence[KnownTable]) -> dict[TableIdentifier, TableStatus]:
    """Return short table records by table."""
    declared = desk.gateway.declared.all()
    entries = {table.identifier: table.entry for table in known}
    glances = overview(desk.workspace, entries, declared.definitions.tables, complete=declared.is_complete)
    return dict(zip(entries, with_paused(_seen(desk, glances), desk.gateway.paused), strict=True))


def _column_origins(
    desk: Desk, known: KnownTable, every: Mapping[TableIdentifier, KnownTable], hidden: Set[TableIdentifier]
) -> dict[str, tuple[ColumnOrigin, ...]]:
    entry = known.entry
    if entry is None:
        return {}
    # Not those of the list of all tables, which has no columns.
    parents = {name: desk.known(name).entry if name in every else None for name in known.upstream}
    columns = {str(name): [column.name for column in parent.columns] if parent else [] for name, parent in parents.items()}
    origins = column_origins(entry.expanded_query, columns)
    visible = {
        column.name: tuple(one for one in origins.get(column.name.lower(), ()) if TableIdentifier.parse(one.table) not in hidden)
        for column in entry.columns
    }
    return {name: found for name, found in visible.items() if found}


def _names(tables: Iterable[TableIdentifier]) -> tuple[str, ...]:
    return tuple(sorted(map(str, tables)))


@router.get("/v3/dynamic-tables/{table}/plan", summary="Plan a scheduled refresh")
def plan(
    desk: AtDesk,
    table: Name,
    schedule_time: Time = None,
) -> TablePlan:
    """Refresh mode with its reason, cron, partitions, sources, statement, and the missed ticks that it makes up for (`catchUp`,
    `catchUpReason`).

    The statement names views instead of inlining them. ``upstream`` omits dynamic tables that the caller may not read.
    """
    return _plan(desk, desk.table(table).declaration, schedule_time)


@router.get("/v3/dynamic-tables/{table}/plan/live", summary="Plan a scheduled refresh from the current state of the sources")
def plan_live(desk: AtDesk, table: Name, schedule_time: Time = None) -> LivePlan:
    """The plan, and what the refresh would do now: action, partitions, and the change that is the cause. The sources are read."""
    declared = desk.table(table).declaration
    planned = _plan(desk, declared, schedule_time)
    found = live_plan(desk.workspace, planned, declared, desk.gateway.declared.all().definitions)
    hidden = set(map(str, desk.hidden(map(TableIdentifier.parse, found.downstream))))
    return replace(found, downstream=tuple(name for name in found.downstream if name not in hidden))


def _plan(desk: Desk, declared: DynamicTable, schedule_time: str | None) -> TablePlan:
    try:
        given = datetime.fromisoformat(schedule_time) if schedule_time else None
        at = in_time_zone(given, declared) if given else latest_schedule_time(declared, desk.workspace.now())
    except ConfigurationError as error:
        raise InvalidFieldError("query.scheduleTime", str(error)) from error
    sources = desk.gateway.declared.all().definitions.sources
    planned = preview(declared, at, sources)
    hidden = desk.hidden(declared.upstream)
    visible = replace(
        planned,
        statement=statement(declared.query, planned.partitions),
        upstream=tuple(str(name) for name in declared.upstream if name not in hidden),
    )
    return with_catch_up(desk.workspace, visible, declared, sources)


@router.get("/v3/dynamic-tables/{table}/why", summary="Show where the rows of a table come from")
def why(desk: AtDesk, table: Name, partition: Partition = None) -> OriginPage:
    """The refreshes that made its partitions, the versions of its sources that they read, and so on, down to files; and what has
    changed since.

    Dynamic tables that the caller may not read are omitted, with the tables that only these read.
    """
    known = desk.table(table)
    declared = known.declaration
    try:
        asked = parse_partitions(partition, declared.formatters) if partition else None
    except ValueError as error:
        raise InvalidFieldError("query.partition", str(error)) from error
    definitions = desk.gateway.declared.all().definitions
    return OriginPage(tuple(origins(desk.workspace, definitions, declared, asked, desk.hidden())))


@router.get("/v3/dynamic-tables/{table}/delay", summary="Show where the delay of a table began")
def delay(desk: AtDesk, table: Name) -> Delay:
    """The first table upstream that stopped, since when, and who or what must act.

    Tables that the caller may not read are omitted.
    """
    known = desk.table(table)
    every = {one.identifier: one for one in desk.every_table()}
    reads = {name: one.upstream for name, one in every.items()}
    above = reachable(known.identifier, reads)
    shown = [every[name] for name in above - desk.hidden(above) if name in every]
    return find_delay(known.identifier, _statuses(desk, [known, *shown]), reads)


@router.get("/v3/dynamic-tables/{table}/partitions", summary="List the partitions of a table")
def partitions(desk: AtDesk, table: Name) -> PartitionPage:
    """Which version made each partition, how many rows it wrote, and which ones are dirty, frozen or in quarantine.

    No source is read.
    """
    known = desk.table(table)
    if known.entry is None:
        return PartitionPage(())
    return PartitionPage(tuple(list_partitions(desk.workspace, known.identifier, known.definition)))


_OWN_TEXT = ("query", "original_query")
"""Fields with the text of the query."""

_IN_FULL = ("resolved.query", "expanded_query")
"""Fields with the text of the query after views were inlined."""

_UPSTREAM = "resolved.upstream"


@router.post("/v3/dynamic-tables/{table}/suspend", summary="Suspend a table", openapi_extra=requires(Right.CHANGE))
def suspend_table(desk: AtDesk, table: Name, suspension: Suspension) -> StateChange:
    """No further refresh starts unless it is forced; a running refresh continues to its end. Safe to repeat."""
    return suspend(desk.workspace, desk.deployed(table), suspension.reason)


@router.post("/v3/dynamic-tables/{table}/resume", summary="Resume a table", openapi_extra=requires(Right.CHANGE))
def resume_table(desk: AtDesk, table: Name, _resumption: Resumption) -> StateChange:
    """The next refresh makes up for missed ticks. Safe to repeat."""
    return resume(desk.workspace, desk.deployed(table))


@router.post("/v3/dynamic-tables/{table}/rollback", summary="Restore a version of a table", openapi_extra=requires(Right.CHANGE))
def rollback_table(desk: AtDesk, table: Name, wanted: Rollback) -> Version:
    """The content of an earlier version becomes a new version. Refused while the table is being refreshed."""
    identifier = desk.deployed(table)
    token = str(uuid4())
    request = RollbackRequest(identifier, wanted.version, token, f"rollback by {desk.caller.name}", wanted.with_columns)
    return rollback(desk.workspace, request)


@router.post(
    "/v3/dynamic-tables/{table}/publish", summary="Publish a refresh in quarantine", openapi_extra=requires(Right.CHANGE)
)
def publish_refresh(desk: AtDesk, table: Name, decision: QuarantineDecision) -> Version:
    """Commit a refresh that an expectation put into quarantine. Everything else is checked again. Safe to repeat."""
    token = _quarantined(desk, table, decision)
    with _decided():
        return publish(desk.workspace, token)


@router.post("/v3/dynamic-tables/{table}/abort", summary="Abort a refresh in quarantine", openapi_extra=requires(Right.CHANGE))
def abort_refresh(desk: AtDesk, table: Name, decision: QuarantineDecision) -> Refresh:
    """Delete the rows of a refresh that an expectation put into quarantine; the table stays as it is. Safe to repeat."""
    token = _quarantined(desk, table, decision)
    with _decided():
        reject(desk.workspace, token, f"aborted by {desk.caller.name}")
    return _refresh(desk, token)


@contextmanager
def _decided() -> Iterator[None]:
    """Translate the error for a refresh that is not in quarantine: here, it is not one of the configuration."""
    try:
        yield
    except ConfigurationError as error:
        raise ConflictError(str(error)) from error


def _quarantined(desk: Desk, table: str, decision: QuarantineDecision) -> str:
    """Return the token of a refresh of a table.

    :raises NotFoundError: if the table has no such refresh.
    """
    identifier = desk.deployed(table)
    if _refresh(desk, decision.token).table != identifier:
        raise NotFoundError(_UNKNOWN.format(token=shown(decision.token)))
    return decision.token


def _refresh(desk: Desk, token: str) -> Refresh:
    found = desk.workspace.ledger.get_refresh(token)
    if found is None:
        raise NotFoundError(_UNKNOWN.format(token=shown(token)))
    return found


_UNKNOWN = "The table has no refresh {token}; its history lists those in quarantine."


@router.post("/v3/dynamic-tables/{table}/drop", summary="Drop a table with all its versions", openapi_extra=requires(Right.DROP))
def drop_table(desk: AtDesk, table: Name, how: Drop) -> Dropped:
    """Remove a table from its catalog. Its history stays, and its files stay without `purge`. If it is still declared, its next
    refresh creates it again.

    Refused while the table is being refreshed, or while a refresh of it is in quarantine.
    """
    identifier = desk.permitted(table)
    return (drop_if_exists if how.if_exists else drop)(desk.workspace, identifier, purge=how.purge)


@router.get("/v3/dynamic-tables/{table}/diff", summary="Compare a definition with the deployed table")
def diff(desk: AtDesk, table: Name) -> Difference:
    """The changes that deploying the definition would make, and the tables downstream that they affect.

    Tables that the caller may not read are omitted, and so is the text of views that the query reads.
    """
    known = desk.table(table)
    if known.definition is None:
        raise ConflictError(
            f"{known.identifier} is not declared in the definitions of this server, so there is nothing to compare."
        )
    declared = desk.gateway.declared.all()
    (found,) = differences(desk.workspace, declared.definitions, [known.definition], is_complete=declared.is_complete)
    below = {one.identifier for one in desk.readable(desk.known(touched.table) for touched in found.downstream)}
    return replace(
        found,
        query=found.query if any(one.name in _OWN_TEXT for one in found.fields) else "",
        claimed=_claimed(desk, known) if found.claimed else None,
        place=f"{known.definition.file}:{known.definition.line}",
        fields=tuple(_field(desk, one) for one in found.fields),
        downstream=tuple(touched for touched in found.downstream if touched.table in below),
    )


def _field(desk: Desk, change: FieldChange) -> FieldChange:
    """Return one field; a query is only reported as changed, and tables that the caller may not read are left out."""
    if change.name in _IN_FULL:
        return FieldChange(change.name, None, None)
    if change.name != _UPSTREAM:
        return change
    names = {*(change.deployed or ()), *(change.declared or ())}
    hidden = {str(name) for name in desk.hidden(map(TableIdentifier.parse, names))}
    deployed, declared = ([one for one in names or () if one not in hidden] for names in (change.deployed, change.declared))
    return FieldChange(change.name, deployed, declared)


def _claimed(desk: Desk, known: KnownTable) -> str:
    """Return the two deployments that declare a table, by their files, without the folders of the server."""
    owner = deployed_by(known.entry.definition) if known.entry is not None else None
    if owner is None or known.definition is None:
        return f"{known.identifier} is declared by two deployments."
    own = own_deployment(desk.workspace.ledger.installation(), known.definition)
    return claimed(known.identifier, *(replace(one, file=Path(one.file).name) for one in (owner, own)))
