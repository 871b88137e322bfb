"""Catching up: a scheduled refresh also makes the partitions of the ticks that failed or never ran.

So the data timestamp of a table with time partitions is the end of its unbroken ticks: the partitions of every tick up to then
are in the table. A refresh that a user asks for makes the partitions that it names and no others. It moves the data timestamp
only as far as no tick is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import Initial
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.wall_clock import is_ahead
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, ConflictError, DynamicTableError
from airflow_dynamic_tables.services.refresh.preview import TablePlan
from airflow_dynamic_tables.services.refresh.requests import NEVER, RefreshRequest, requested_partitions
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.tables.entries import registered_or_new
from airflow_dynamic_tables.services.tables.freshness import found_fresh, fresh_until
from airflow_dynamic_tables.services.tables.ticks import (
    MOST_PARTITIONS,
    TimeTable,
    earlier_holes,
    history,
    lacking,
    made_by,
    times_made,
)
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_ALL = 10_000
"""Refreshes of the history that are looked at where it is not known which version a table is at."""


def time_table(table: DynamicTable) -> TimeTable:
    """The schedule and the time partitions of a table that has some."""
    return TimeTable(table.cron, table.timezone, table.freshness, table.formatters)


def caught_up(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> RefreshRequest:
    """A request together with the partitions of the ticks that the table lacks; the same one where it makes none up.

    When they are too many for one commit, it is for an earlier schedule time, and has a token of its own: the rest is for the
    commits after it.

    :param request: no source of it has a watermark.
    """
    current = registered.current()
    asked_for = request.partitions is not None or request.full_refresh or request.batch is not None
    if asked_for or not request.table.formatters:
        return request
    if not (request.catches_up or request.is_scheduled):
        return replace(request, begins="it begins with this tick, which was asked for") if current is None else request
    fresh = _unbroken_until(workspace, registered)
    if fresh is not None and current is not None:
        made_up = replace(_after(request, fresh, "it makes up for"), since=fresh)
        return _with_earlier_holes(workspace, registered, made_up, fresh)
    return _first(workspace, request, registered)


def with_catch_up(
    workspace: Workspace, plan: TablePlan, table: DynamicTable, sources: Mapping[TableIdentifier, Source]
) -> TablePlan:
    """A plan with the missed ticks that its refresh would make up for; only looks. Sources with a watermark are not looked at."""
    request = RefreshRequest(table, sources, plan.schedule_time, token="", owner="", catches_up=True)
    if request.has_watermark or not table.formatters:
        return plan
    try:
        found = caught_up(workspace, request, registered_or_new(workspace, table))
    except (CatalogError, ConfigurationError) as error:
        return replace(plan, catch_up_reason=f"it is not known which ticks are missing: {error}")
    return replace(plan, catch_up=None if found.missed.is_empty else found.missed, catch_up_reason=found.begins or None)


def _unbroken_until(workspace: Workspace, registered: RegisteredTable) -> datetime | None:
    """The time up to which no tick is missing; that of an earlier version where a wrong clock made the current one."""
    current = registered.current()
    if (fresh := fresh_until(workspace, current)) is not None or current is None or current.data_timestamp is None:
        return fresh
    earlier = (fresh_until(workspace, version) for version in reversed(registered.loaded.versions()))
    known = next((time for time in earlier if time is not None), None)
    log.warning("The data timestamp of the table, %s, is in the future: %s counts.", current.data_timestamp, known or "none")
    return known


def _first(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> RefreshRequest:
    """The first scheduled refresh of a table. What a table holds that was adopted, or begun by hand, is not replaced."""
    definition, current = request.table, registered.current()
    if definition.start_date is not None and definition.start_date < request.schedule_time:
        return _after(request, definition.start_date, "it begins with start_date:")
    if current is not None and (oldest := _oldest(workspace, definition, current)) is not None:
        return _after(request, oldest, "it begins with the oldest partition that was asked for:")
    if definition.initial is Initial.LATEST:
        return replace(request, begins="it begins with the latest tick (initial: latest)")
    if current is not None or registered.loaded.layout() is not None:
        return replace(request, begins="it begins with the latest tick, because the table has other rows already")
    return replace(request, missed=WHOLE_TABLE, begins="it begins with all that its sources have (initial: all)")


def _oldest(workspace: Workspace, table: DynamicTable, current: Version) -> datetime | None:
    """The time with which the oldest partition begins that a user asked for; ``None``: unknown.

    Where it is not known which version the table is at, this is any that the history has.
    """
    known = history(workspace, table.identifier, current.number)
    refreshes = known if current.number else workspace.ledger.list_refreshes(table.identifier, _ALL)
    made = (refresh for refresh in refreshes if refresh.version and not refresh.partitions.is_whole)
    return time_table(table).oldest(spec for refresh in made for spec in refresh.partitions)


def _with_earlier_holes(
    workspace: Workspace, registered: RegisteredTable, request: RefreshRequest, fresh: datetime
) -> RefreshRequest:
    """The request with the partitions that earlier releases left out: their data timestamp was the newest tick that was made.

    :param fresh: up to when the table was fresh for them.
    """
    identifier = request.table.identifier
    if is_unbroken(workspace, request, NO_PARTITIONS, registered.current()):
        return request
    try:
        holes = earlier_holes(workspace, registered, time_table(request.table), fresh)
    except (DynamicTableError, OSError) as error:
        log.warning(
            "An earlier release may have left out partitions of %s before %s, and it is not known which: %s If it did, make "
            "them with: dynamic-tables refresh %s --partition FIRST..LAST",
            *(identifier, fresh.isoformat(), error, identifier),
        )
        holes = NO_PARTITIONS
    if holes.is_empty:
        return replace(request, unbroken=True)
    log.warning(
        "%s lacks %s, which earlier releases left out. A scheduled refresh makes them. The tables that read it counted without "
        "them: refresh the same time of those, too.",
        *(identifier, holes.brief),
    )
    begins = f"{request.begins}; it makes" if request.begins else "it makes"
    return replace(
        request,
        missed=request.missed.union(holes),
        begins=f"{begins} {holes.brief}, which earlier releases left out",
        unbroken=len(holes) < MOST_PARTITIONS,
    )


def _after(request: RefreshRequest, fresh: datetime, begins: str) -> RefreshRequest:
    """The request with all ticks after a time, or as many as one commit takes."""
    reached, partitions = time_table(request.table).batch(fresh, request.schedule_time, MOST_PARTITIONS)
    if reached < request.schedule_time:
        token = str(uuid5(NAMESPACE_URL, f"{request.token}/{reached.isoformat()}"))
        sentence = f"{begins} {partitions.brief}; the ticks from then up to {request.schedule_time.isoformat()} follow"
        return replace(request, token=token, schedule_time=reached, missed=partitions, begins=sentence)
    own = requested_partitions(request)
    missed = PartitionSet.of(spec for spec in partitions if not own.covers(spec))
    return request if missed.is_empty else replace(request, missed=missed, begins=f"{begins} {missed.brief}")


def fresh_then(
    workspace: Workspace, registered: RegisteredTable, request: RefreshRequest, partitions: PartitionSet, *, has_watermark: bool
) -> datetime | None:
    """The time up to which a refresh makes its table fresh; ``None``: it makes it no fresher.

    :param partitions: those that it replaces.
    :param has_watermark: whether a source tells which partitions are complete, and no schedule does.
    :raises ConflictError: when the table lacks ticks by now that it had when the refresh began.
    """
    if request.is_one_off:
        return None
    current = registered.current()
    reached = None if request.complete_until == NEVER else request.complete_until or request.schedule_time
    if has_watermark or not request.table.formatters:
        # Partitions named by hand make the table as a whole no fresher than it was found to be.
        return reached if request.partitions is None else found_fresh(workspace, current)
    if partitions.is_whole:
        return reached
    fresh = fresh_until(workspace, current)
    if (request.catches_up or request.is_scheduled) and request.partitions is None:
        _check_still_fresh(workspace, request, current)
        return max(filter(None, (reached, fresh)), default=None)
    if fresh is None:
        begins = current is None and request.partitions is None
        return reached if begins else None
    return _moved_on(workspace, registered, request, partitions, fresh)


def _check_still_fresh(workspace: Workspace, request: RefreshRequest, current: Version | None) -> None:
    """Check that the table has not gone back since the missed ticks were looked for."""
    if request.since is None or (current and current.data_timestamp and is_ahead(current.data_timestamp, workspace.now())):
        return
    fresh = fresh_until(workspace, current)
    if fresh is None or fresh < request.since:
        raise ConflictError(
            f"{request.table.identifier} was fresh up to {request.since.isoformat()} when this refresh began, and has gone back "
            "since then; the next try makes up for all ticks that are missing now."
        )


def _moved_on(
    workspace: Workspace, registered: RegisteredTable, request: RefreshRequest, partitions: PartitionSet, fresh: datetime
) -> datetime:
    """The end of the unbroken ticks after these partitions are made, for what is fresh up to a time before."""
    current = registered.current()
    own = (request.complete_until or request.schedule_time, partitions)
    made = made_by([own, *times_made(history(workspace, request.table.identifier, current.number if current else None))])
    for tick, planned in time_table(request.table).steps(fresh, max(made.values())):
        if not lacking(normalised(planned, registered.columns), tick, made).is_empty:
            break
        fresh = tick
    return fresh


def is_unbroken(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, current: Version | None) -> bool:
    """Whether no tick is missing before the data timestamp of a table once these partitions are made."""
    if request.unbroken is not None:
        return request.unbroken
    if current is None or partitions.is_whole or not request.table.formatters:
        return True
    made = workspace.ledger.get_refresh(current.token)
    return made is not None and made.unbroken is True
