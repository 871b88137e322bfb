"""Looking at tables: all of them, one, its history, its versions, what it reads, and what a refresh of it would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.api.answers import (
    ColumnAnswer,
    HistoryAnswer,
    LineageAnswer,
    PlanAnswer,
    RefreshAnswer,
    TableAnswer,
    TableGlance,
    TablePage,
    VersionAnswer,
    VersionsAnswer,
)
from airflow_dynamic_tables.api.desk import AtDesk, Desk, KnownTable
from airflow_dynamic_tables.api.questions import Limit, Name, TableFilter, Time
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import ConfigurationError, InvalidFieldError
from airflow_dynamic_tables.services.refresh.catching_up import preview_catch_up
from airflow_dynamic_tables.services.refresh.preview import preview, statement
from airflow_dynamic_tables.services.refresh.requests import in_time_zone, latest_schedule_time
from airflow_dynamic_tables.services.tables.status import TableStatus, overview, show_table

router = APIRouter()


@router.get("/v3/dynamic-tables", summary="Tables at a glance")
def tables(desk: AtDesk, asked: Annotated[TableFilter, Query()]) -> TablePage:
    """All tables that the caller may look at, declared or deployed, in order of their names.

    Versions and times are those of the history; what another engine did to a table, only the table itself shows.
    """
    wanted = (one for one in desk.every_table(asked.catalog, asked.database) if _fits(one, asked))
    page = sorted(desk.readable(wanted), key=lambda table: str(table.identifier))[: asked.limit + 1]
    shown = page[: asked.limit]
    declared = desk.gateway.declared.all()
    entries = {table.identifier: table.entry for table in shown}
    glances = overview(desk.workspace, entries, declared.definitions.tables, complete=declared.is_complete)
    following = str(shown[-1].identifier) if len(page) > asked.limit else None
    return TablePage(tables=[TableGlance.model_validate(glance) for glance in _seen(desk, glances)], next=following)


def _seen(desk: Desk, glances: Sequence[TableStatus]) -> list[TableStatus]:
    """Tables at a glance, without the parents that the caller may not look at."""
    parents = sorted({parent.table for glance in glances for parent in glance.behind})
    known = [desk.known(TableIdentifier.parse(parent)) for parent in parents]
    readable = {str(table.identifier) for table in desk.readable(known)}
    return [replace(glance, behind=tuple(one for one in glance.behind if one.table in readable)) for glance in glances]


def _fits(table: KnownTable, asked: TableFilter) -> bool:
    if asked.name is not None and asked.name.lower() not in table.identifier.table.lower():
        return False
    if asked.state is not None and (table.entry is None or table.entry.refresh_handler.job_state is not asked.state):
        return False
    return str(table.identifier) > asked.after


@router.get("/v3/dynamic-tables/{table}", summary="One table as it is")
def one_table(desk: AtDesk, table: Name) -> TableAnswer:
    """A table, looked at itself. One that is declared and has never been refreshed has neither columns nor versions."""
    known = desk.table(table, Right.READ)
    if known.entry is None:
        declared = known.declaration
        (glance,) = overview(desk.workspace, {known.identifier: None}, {known.identifier: declared})
        return TableAnswer.model_validate({**asdict(glance), "query": declared.query, "comment": declared.comment})
    others = False if desk.gateway.declared.all().is_complete else None
    details = show_table(desk.workspace, known.identifier, 1, defined=known.definition is not None or others)
    entry = known.entry
    (glance,) = _seen(desk, [details.status])
    return TableAnswer.model_validate(
        {
            **asdict(glance),
            "comment": entry.comment,
            "columns": [ColumnAnswer.model_validate(column, from_attributes=True) for column in entry.columns],
            "partition_keys": list(entry.partition_keys),
            "query": entry.original_query,
        }
    )


@router.get("/v3/dynamic-tables/{table}/history", summary="Its latest refreshes")
def history(desk: AtDesk, table: Name, limit: Limit = 20) -> HistoryAnswer:
    """What was done and why, how it ended, rows, bytes, and seconds of each step; newest first."""
    known = desk.table(table, Right.READ)
    refreshes = desk.workspace.ledger.list_refreshes(known.identifier, limit)
    return HistoryAnswer(
        refreshes=[
            RefreshAnswer.model_validate({**_fields(refresh, RefreshAnswer), "partitions": _partitions(refresh.partitions)})
            for refresh in refreshes
        ]
    )


@router.get("/v3/dynamic-tables/{table}/versions", summary="Its kept versions")
def versions(desk: AtDesk, table: Name, limit: Limit = 20) -> VersionsAnswer:
    """The versions that readers can still ask for, newest first."""
    known = desk.table(table, Right.READ)
    if known.entry is None:
        return VersionsAnswer(versions=[])
    kept = desk.workspace.table(known.identifier, known.entry.format).versions()
    latest = reversed(kept[-limit:])
    return VersionsAnswer(versions=[VersionAnswer.model_validate(version, from_attributes=True) for version in latest])


@router.get("/v3/dynamic-tables/{table}/lineage", summary="What it reads, and what reads it")
def lineage(desk: AtDesk, table: Name) -> LineageAnswer:
    """The tables above and below. Sources that nobody refreshes are always shown, dynamic tables to who may look at them."""
    known = desk.table(table, Right.READ)
    every = {one.identifier: one for one in desk.every_table()}
    reads = {name: one.upstream for name, one in every.items()}
    read_by: dict[TableIdentifier, list[TableIdentifier]] = {}
    for name, sources in reads.items():
        for source in sources:
            read_by.setdefault(source, []).append(name)
    above = _reached(known.identifier, reads)
    below = _reached(known.identifier, read_by)
    hidden = desk.hidden(above | below)
    return LineageAnswer(
        identifier=str(known.identifier),
        upstream=_names(set(reads.get(known.identifier, ())) - hidden),
        downstream=_names(set(read_by.get(known.identifier, ())) - hidden),
        ancestors=_names(above - hidden),
        descendants=_names(below - hidden),
    )


def _reached(start: TableIdentifier, edges: Mapping[TableIdentifier, Iterable[TableIdentifier]]) -> set[TableIdentifier]:
    """Everything that edges lead to; not where they start."""
    reached: set[TableIdentifier] = set()
    waiting = [start]
    while waiting:
        new = set(edges.get(waiting.pop(), ())) - reached
        reached |= new
        waiting.extend(new)
    return reached - {start}


def _names(tables: Iterable[TableIdentifier]) -> list[str]:
    return sorted(map(str, tables))


@router.get("/v3/dynamic-tables/{table}/plan", summary="What a scheduled refresh would do")
def plan(
    desk: AtDesk,
    table: Name,
    schedule_time: Time = None,
) -> PlanAnswer:
    """Refresh mode and why, cron, partitions, what it reads, the statement, and the missed ticks that it would make up for.

    Views stand in the statement by their names, and dynamic tables that the caller may not read are left out of ``upstream``.
    """
    known = desk.table(table, Right.READ)
    declared = known.declaration
    try:
        given = datetime.fromisoformat(schedule_time) if schedule_time else None
        at = in_time_zone(given, declared) if given else latest_schedule_time(declared, desk.workspace.now())
    except ConfigurationError as error:
        raise InvalidFieldError("query.scheduleTime", str(error)) from error
    planned = preview(declared, at)
    hidden = desk.hidden(declared.upstream)
    planned = replace(
        planned,
        statement=statement(declared.query, planned.partitions),
        upstream=tuple(str(name) for name in declared.upstream if name not in hidden),
    )
    sources = desk.gateway.declared.all().definitions.sources
    made_up = preview_catch_up(desk.workspace, declared, sources, at)
    catch_up = None if made_up.catch_up is None else _partitions(made_up.catch_up) or []
    fields = {**asdict(planned), "partitions": _partitions(planned.partitions) or []}
    return PlanAnswer.model_validate({**fields, "catch_up": catch_up, "catch_up_reason": made_up.catch_up_reason})


def _fields(value: Any, of: type[RefreshAnswer]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in of.model_fields}


def _partitions(partitions: PartitionSet) -> list[dict[str, str | None]] | None:
    return None if partitions.is_whole else [dict(spec) for spec in partitions]
