"""Catching up: a scheduled refresh also makes the partitions of the ticks that failed or never ran.

So the data timestamp of a table with time partitions is the end of its unbroken ticks: the partitions of every tick up to then
are in the table. A refresh that a user asks for makes the partitions that it names and no others. It moves the data timestamp
only as far as no tick is missing.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.refresh.actions import Initial
from airflow_dynamic_tables.core.schedule.wall_clock import is_ahead
from airflow_dynamic_tables.core.tables.dates import start_of
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, requested_partitions
from airflow_dynamic_tables.services.tables.freshness import found_fresh, fresh_until
from airflow_dynamic_tables.services.tables.ticks import MOST_PARTITIONS, TimeTable, history, lacking
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def time_table(table: DynamicTable) -> TimeTable:
    """The schedule and the time partitions of a table that has some."""
    return TimeTable(table.cron, table.timezone, table.freshness, table.formatters)


def caught_up(workspace: Workspace, request: RefreshRequest, table: LakeTable, current: Version | None) -> RefreshRequest:
    """A request together with the partitions of the ticks that the table lacks; the same one where it makes none up.

    When they are too many for one commit, it is for an earlier schedule time, and has a token of its own: the rest is for the
    commits after it.

    :param request: no source of it has a watermark.
    :param current: the current version of the table.
    """
    asked_for = request.partitions is not None or request.full_refresh or request.batch is not None
    if asked_for or not request.table.formatters:
        return request
    if not (request.catches_up or request.is_scheduled):
        return replace(request, begins="it begins with this tick, which was asked for") if current is None else request
    fresh = _unbroken_until(workspace, table, current)
    if fresh is not None:
        return replace(_after(request, fresh, "it makes up for"), since=fresh)
    return _first(workspace, request, table, current)


def _unbroken_until(workspace: Workspace, table: LakeTable, current: Version | None) -> datetime | None:
    """The time up to which no tick is missing; that of an earlier version where a wrong clock made the current one."""
    if (fresh := fresh_until(workspace, current)) is not None or current is None or current.data_timestamp is None:
        return fresh
    earlier = (fresh_until(workspace, version) for version in reversed(table.versions()))
    known = next((time for time in earlier if time is not None), None)
    log.warning("The data timestamp of the table, %s, is in the future: %s counts.", current.data_timestamp, known or "none")
    return known


def _first(workspace: Workspace, request: RefreshRequest, table: LakeTable, current: Version | None) -> RefreshRequest:
    """The first scheduled refresh of a table. What a table holds that was adopted, or begun by hand, is not replaced."""
    definition = request.table
    if definition.start_date is not None and definition.start_date < request.schedule_time:
        return _after(request, definition.start_date, "it begins with start_date:")
    if current is not None and (oldest := _oldest(workspace, definition)) is not None:
        return _after(request, oldest, "it begins with the oldest partition that was asked for:")
    if definition.initial is Initial.LATEST:
        return replace(request, begins="it begins with the latest tick (initial: latest)")
    if current is not None or table.layout() is not None:
        return replace(request, begins="it begins with the latest tick, because the table has other rows already")
    return replace(request, missed=WHOLE_TABLE, begins="it begins with all that its sources have (initial: all)")


def _oldest(workspace: Workspace, table: DynamicTable) -> datetime | None:
    """The time with which the oldest partition begins that a user asked for; ``None``: unknown."""
    made = (refresh for refresh in history(workspace, table.identifier) if not refresh.partitions.is_whole)
    starts: list[datetime] = []
    for spec in (spec for refresh in made for spec in refresh.partitions):
        try:
            starts.append(start_of(spec, table.formatters))
        except ValueError:  # null, or a spelling of an earlier definition
            continue
    return min(starts).replace(tzinfo=ZoneInfo(table.timezone)) if starts else None


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
    workspace: Workspace, request: RefreshRequest, current: Version | None, partitions: PartitionSet, *, has_watermark: bool
) -> datetime | None:
    """The time up to which a refresh makes its table fresh; ``None``: it makes it no fresher.

    :param current: the version that it replaces some of.
    :param partitions: those that it replaces.
    :param has_watermark: whether a source tells which partitions are complete, and no schedule does.
    :raises ConflictError: when the table lacks ticks by now that it had when the refresh began.
    """
    if request.is_one_off:
        return None
    if has_watermark or not request.table.formatters:
        # Partitions named by hand make the table as a whole no fresher than it was found to be.
        return request.schedule_time if request.partitions is None else found_fresh(workspace, current)
    if partitions.is_whole:
        return request.schedule_time
    fresh = fresh_until(workspace, current)
    if (request.catches_up or request.is_scheduled) and request.partitions is None:
        _check_still_fresh(workspace, request, current)
        return max(request.schedule_time, fresh or request.schedule_time)
    if fresh is None:
        begins = current is None and request.partitions is None
        return request.schedule_time if begins else None
    return _moved_on(workspace, request, fresh, partitions)


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


def _moved_on(workspace: Workspace, request: RefreshRequest, fresh: datetime, partitions: PartitionSet) -> datetime:
    """The end of the unbroken ticks after these partitions are made, for what is fresh up to a time before."""
    made = [(request.schedule_time, partitions)]
    made += [(refresh.schedule_time, refresh.partitions) for refresh in history(workspace, request.table.identifier)]
    columns = workspace.catalog(request.table.identifier.catalog).get_table(request.table.identifier.path).columns
    for tick, planned in time_table(request.table).steps(fresh, max(time for time, _ in made)):
        if not lacking(normalised(planned, columns), tick, made).is_empty:
            break
        fresh = tick
    return fresh
