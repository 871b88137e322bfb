"""Waiting for upstream: parents must be fresh up to their latest tick at or before the schedule time, and awaited data exist."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.cron import next_tick, previous_tick
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import partitions_within, start_of
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows, Source
from airflow_dynamic_tables.core.schedule import elapsed
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    DynamicTableError,
    TableNotFoundError,
    UpstreamError,
    UpstreamSuspendedError,
)
from airflow_dynamic_tables.formats.registry import count_rows
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.requests import NEVER, Parent, RefreshRequest, requested_partitions
from airflow_dynamic_tables.services.source_progress import Growth
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.workspace import Workspace, why_suspended
from airflow_dynamic_tables.services.writes.leases import YIELDING

log = logging.getLogger(__name__)

_NOT_WELL = {
    RefreshState.FAILED: "its last refresh failed",
    RefreshState.ABORTED: "its last refresh failed",
    RefreshState.UNDONE: "its last version was undone by another engine",
    RefreshState.QUARANTINED: "its last refresh is in quarantine",
    RefreshState.REJECTED: "a user aborted its last refresh, which was in quarantine",
}

_MOST_TOLD = 20
"""Limit of missing upstreams in a message; a week may have a file every minute."""


@dataclass(frozen=True, slots=True)
class PendingParent:
    """A parent that is not fresh enough: the required and the actual data timestamp, and the state of a failed last refresh.

    ``lost_tick`` is its last tick in time, if the run for it has failed and no other refresh is in progress. ``suspended`` is the
    reason if the parent, or a table upstream of it, is suspended and no refresh of it is in progress. It ``may_come`` anyway if
    the suspension may end before its last tick in time.
    """

    identifier: TableIdentifier
    required: datetime
    data_timestamp: datetime | None
    failed: RefreshState | None
    lost_tick: datetime | None = None
    workflow_id: str = ""
    suspended: str = ""
    may_come: bool = False


@dataclass(frozen=True, slots=True)
class PendingData:
    """Awaited data that is missing or cannot be checked, with the problem as a sentence without a full stop."""

    problem: str
    failed: None = None
    lost_tick: None = None
    suspended: str = ""
    may_come: bool = True


Upstream = Parent | AwaitedData
"""An input that a refresh may wait for."""

Pending = PendingParent | PendingData
"""An input that a refresh still waits for."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The upstreams that a refresh waits for, its deadline, and the time up to which it needs its parents."""

    upstream: tuple[Upstream, ...]
    until: datetime
    needed_until: datetime


HasGivenUp = Callable[[str, datetime], bool]
"""Returns whether the run of a workflow for a tick has permanently failed and no other run of it is in progress."""


def parents_of(table: DynamicTable, definitions: Definitions) -> tuple[Parent, ...]:
    """Return the tables that a refresh may need and that are refreshed automatically: by schedule, asset updates or a loop."""
    read = (definitions.tables[name] for name in definitions.needed_by(table) if name in definitions.tables)
    return tuple(
        Parent.of(parent, table.max_lag.get(str(parent.identifier)))
        for parent in read
        if parent.cron is not None or parent.on is not None or parent.is_continuous
    )


def why_wait(
    workspace: Workspace,
    request: RefreshRequest,
    parents: Iterable[Parent],
    deadline: datetime | None,
    has_given_up: HasGivenUp,
    longest_wait: timedelta | None = None,
) -> Wait | None:
    """Return the upstreams that a refresh waits for, and log them; ``None`` if it can begin.

    :param parents: the parents that its query may read, or its expectations refer to; those that neither currently needs are
        ignored.
    :param deadline: the deadline of a wait in progress; by default one freshness from now, or ``longest_wait`` if that is less.
    :raises UpstreamError: if the deadline has passed, or waiting is in vain.
    """
    if not request.waits:
        return None
    needed_until = parents_needed_until(request)
    referenced = (parent for parent in parents if parent.identifier in request.table.awaited_references)
    read = dict.fromkeys((*parents_read(workspace, request, parents), *referenced))
    needed = in_time(read, request.table, request.schedule_time)
    upstream: tuple[Upstream, ...] = (*needed, *data_of(request))
    waiting = pending(workspace, upstream, needed_until, has_given_up)
    if not waiting:
        return None
    now = workspace.now()
    freshness = request.table.freshness.period
    until = deadline or now + (freshness if longest_wait is None else min(freshness, longest_wait))
    if until <= now or is_in_vain(waiting):
        raise waited_too_long(waiting)
    log.info("Waiting, at most until %s: %s.", until.isoformat(), what_is_missing(waiting))
    return Wait(upstream, until, needed_until)


def is_in_vain(waiting: Iterable[Pending]) -> bool:
    """Return whether an upstream cannot arrive in time, because a parent has permanently failed or is suspended."""
    return any(each.lost_tick or (each.suspended and not each.may_come) for each in waiting)


def parents_needed_until(request: RefreshRequest) -> datetime:
    """Return the time up to which parents must be fresh: the schedule time, or the end of partitions refreshed by hand."""
    table = request.table
    is_by_hand = request.is_by_hand or request.partitions is not None
    if not is_by_hand or request.full_refresh or request.has_watermark or not table.formatters:
        return request.schedule_time
    try:
        ends = [_end_of(spec, table) for spec in requested_partitions(request)]
    except ValueError:  # for example a null partition value
        return request.schedule_time
    return min([max(ends, default=request.schedule_time), request.schedule_time])


def _end_of(spec: Mapping[str, str | None], table: DynamicTable) -> datetime:
    start = start_of(spec, table.formatters)
    (partition,) = partitions_within(start, start + timedelta.resolution, table.formatters)
    return partition.end.replace(tzinfo=ZoneInfo(table.timezone), fold=1)


def parents_read(workspace: Workspace, request: RefreshRequest, parents: Iterable[Parent]) -> tuple[Parent, ...]:
    """Return the parents that the query currently reads, which depends on the views of catalogs."""
    read = inline_views(workspace, request.table, request.sources).upstream
    return tuple(parent for parent in parents if parent.identifier in read)


def reachable(workspace: Workspace, request: RefreshRequest, parents: Iterable[Parent]) -> datetime | Sequence[Pending]:
    """Return how fresh a table can be now, limited by its parents and the schedule time; or the upstreams to wait for.

    Thus a table in continuous mode shows the data of its other sources while a daily parent is late.
    """
    needed = parents_read(workspace, request, parents)
    waiting = pending(workspace, (*needed, *data_of(request)), request.schedule_time)
    return _reached(needed, waiting, request.schedule_time) or waiting


def _reached(parents: Iterable[Parent], waiting: Iterable[Pending], reach: datetime) -> datetime | None:
    """Return the time up to which all inputs are complete, at most ``reach``; ``None`` if unknown.

    :param waiting: those of the parents that are not fresh enough for that time.
    """
    by_name = {parent.identifier: parent for parent in parents}
    for each in waiting:
        if isinstance(each, PendingData) or each.data_timestamp is None:
            return None
        reach = min(reach, by_name[each.identifier].serves_until(each.data_timestamp))
    return reach


def complete_until(workspace: Workspace, request: RefreshRequest, growth: Growth | None = None) -> datetime | None:
    """Return the last time for which all inputs of a refresh are complete; ``None`` if that is its schedule time.

    If it is unknown, it is :data:`~.requests.NEVER`.

    :param growth: state of the sources with a watermark. Parents are complete if the refresh has waited for them.
    """
    reached = [] if request.waits else [_unwaited_until(workspace, request)]
    if growth is not None and request.batch is None:
        reached.append(growth.all_partitions_until(request.schedule_time) or NEVER)
    earliest = min((time for time in reached if time is not None), default=request.schedule_time)
    return earliest if earliest < request.schedule_time else None


def _unwaited_until(workspace: Workspace, request: RefreshRequest) -> datetime | None:
    """Return the last tick with complete parents and awaited data, for a refresh that does not wait; ``None`` if none lags."""
    needed_until = parents_needed_until(request)
    try:
        needed = parents_read(workspace, request, request.parents)
        waiting = pending(workspace, (*needed, *data_of(request)), needed_until)
    except (DynamicTableError, OSError) as error:  # the refresh meets the same error and records it
        log.warning("It is not known up to when what this refresh reads is complete: %s", error)
        return NEVER
    if not waiting:
        return None
    log.warning("This refresh does not wait, so the table is fresh only as far as what it reads: %s.", what_is_missing(waiting))
    reached = _reached(needed, waiting, needed_until)
    if reached is None:
        return NEVER
    return previous_tick(request.table.cron, request.table.timezone, reached) if request.table.cron else reached


def data_of(request: RefreshRequest) -> tuple[AwaitedData, ...]:
    """Return the data that a refresh awaits; none if a user specified what to refresh."""
    if request.full_refresh or request.partitions is not None:
        return ()
    table = request.table
    due = (awaited.due(request.schedule_time, table.freshness, table.timezone) for awaited in table.wait_for)
    return tuple(chain.from_iterable(due))


def in_time(parents: Iterable[Parent], table: DynamicTable, schedule_time: datetime) -> tuple[Parent, ...]:
    """Return the parents of a table with their last ticks that are in time for a refresh.

    Later ticks are too late, because the table then has its next tick, or its freshness has elapsed.
    """
    until = elapsed(schedule_time, table.freshness.period)
    if table.cron is not None:
        until = min(until, next_tick(table.cron, table.timezone, schedule_time))
    return tuple(replace(parent, last_tick=parent.last_tick_before(until)) for parent in parents)


def pending(
    workspace: Workspace, upstream: Iterable[Upstream], schedule_time: datetime, has_given_up: HasGivenUp | None = None
) -> tuple[Pending, ...]:
    """Return the upstreams that a refresh at that schedule time still waits for; empty if it can begin.

    :param has_given_up: detects parents that cannot arrive in time; without it, or without a last tick, none is detected.
    """
    checked = (
        _check_data(workspace, each) if isinstance(each, AwaitedData) else _check(workspace, each, schedule_time, has_given_up)
        for each in upstream
    )
    return tuple(each for each in checked if each is not None)


def _check_data(workspace: Workspace, awaited: AwaitedData) -> PendingData | None:
    problem = what_is_not_there(workspace, awaited)
    return PendingData(problem) if problem else None


def what_is_not_there(workspace: Workspace, awaited: AwaitedData) -> str | None:
    """Return why the awaited data is missing, as a sentence without a full stop; ``None`` if it is there.

    Data that cannot be checked counts as missing, because a refresh without it would be silently wrong.

    :raises DynamicTableError: if a retry cannot succeed.
    """
    try:
        if awaited.rows is not None and awaited.source is not None:
            return _missing_rows(workspace, awaited, awaited.source, awaited.rows)
        return None if _is_there(workspace, awaited) else f"{awaited} is not there yet"
    except CatalogUnavailableError as error:
        return f"{awaited} cannot be looked for: {str(error).rstrip('.')}"


def _missing_rows(workspace: Workspace, awaited: AwaitedData, identifier: TableIdentifier, rows: AwaitedRows) -> str | None:
    stores = workspace.readable(identifier.catalog).stores()
    try:
        counted = count_rows(Source(identifier, rows.format, rows.path), stores, awaited.partition, rows.least)
    except TableNotFoundError:
        return f"{identifier} is not there yet"
    return None if counted >= rows.least else f"{awaited.place} has {counted} of {rows.least} rows"


def _is_there(workspace: Workspace, awaited: AwaitedData) -> bool:
    if awaited.source is None:
        return exists(awaited.text)
    catalog = workspace.readable(awaited.source.catalog)
    try:
        return bool(catalog.list_partitions(awaited.source.path, awaited.partition))
    except TableNotFoundError:
        return False


def _check(
    workspace: Workspace, parent: Parent, schedule_time: datetime, has_given_up: HasGivenUp | None
) -> PendingParent | None:
    required = parent.required(schedule_time)
    if (fresh := _fresh_up_to(workspace, parent)) is not None and fresh >= required:
        return None
    is_lost = has_given_up is not None and _is_lost(workspace, parent, required, has_given_up)
    # Checked again, because another run may have committed and ended between the two checks.
    if is_lost and (fresh := _fresh_up_to(workspace, parent)) is not None and fresh >= required:
        return None
    last = next(iter(workspace.ledger.list_refreshes(parent.identifier, limit=1, but=(RefreshAction.VERIFY,))), None)
    ended = last.state if last is not None and last.schedule_time >= required else None
    not_well = ended if ended in _NOT_WELL else None
    lost = parent.last_tick if is_lost else None
    suspended, may_come = why_suspended(parent.identifier, workspace.find_entry(parent.identifier)) or "", False
    if not suspended and last is not None and last.schedule_time >= required:
        suspended, may_come = _held_up(parent, last)
    if suspended and _may_still_land(workspace, parent.identifier, required):
        suspended = ""
    return PendingParent(parent.identifier, required, fresh, not_well, lost, _workflow_of(parent), suspended, may_come)


def _held_up(parent: Parent, last: Refresh) -> tuple[str, bool]:
    """Return why a parent downstream of a suspended table was skipped, and whether a later tick of it is still in time."""
    if last.reason_code is not ReasonCode.UPSTREAM_SUSPENDED:
        return "", False
    why = f"its last refresh was skipped: {last.reason.removesuffix('.')}"
    return why, parent.last_tick is not None and last.schedule_time < parent.last_tick


def _fresh_up_to(workspace: Workspace, parent: Parent) -> datetime | None:
    return fresh_until(workspace, workspace.table(parent.identifier, parent.format).current())


def _is_lost(workspace: Workspace, parent: Parent, required: datetime, has_given_up: HasGivenUp) -> bool:
    if parent.last_tick is None or not has_given_up(_workflow_of(parent), parent.last_tick):
        return False
    return not _may_still_land(workspace, parent.identifier, required)


def _workflow_of(parent: Parent) -> str:
    """Return the workflow of a parent. Triggers of earlier releases have none: every table had its own, without a prefix."""
    return parent.workflow_id or parent.identifier.workflow_id


def _may_still_land(workspace: Workspace, table: TableIdentifier, required: datetime) -> bool:
    """Return whether an unfinished stage could make the table fresh enough: of a run by hand, or with an unknown outcome."""
    stages = (stage for stage in workspace.ledger.list_stages(table) if stage.owner not in YIELDING)
    refreshes = (workspace.ledger.get_refresh(stage.token) for stage in stages)
    return any(refresh is None or refresh.made_for >= required for refresh in refreshes)


def waited_too_long(waiting: Iterable[Pending]) -> UpstreamError:
    """Return the error of a wait: UPSTREAM_SUSPENDED or UPSTREAM_FAILED for a parent, otherwise UPSTREAM_LATE."""
    waiting = tuple(waiting)
    code = "UPSTREAM_FAILED" if any(each.failed or each.lost_tick for each in waiting) else "UPSTREAM_LATE"
    is_suspended = any(each.suspended for each in waiting)
    if is_suspended:
        code = "UPSTREAM_SUSPENDED"
    given_up = (each for each in waiting if isinstance(each, PendingParent) and each.lost_tick)
    lost = " and ".join(parent.workflow_id for parent in given_up)
    advice = f" Mend what failed and clear that run of {lost}; when it has succeeded, clear this one." if lost else ""
    kind = UpstreamSuspendedError if is_suspended else UpstreamError
    return kind(f"{code}: {what_is_missing(waiting)}.{advice}")


def what_is_missing(waiting: Sequence[Pending]) -> str:
    """Describe the missing upstreams as a sentence without a full stop."""
    more = f"; and {len(waiting) - _MOST_TOLD} more" if len(waiting) > _MOST_TOLD else ""
    return "; ".join(map(_why, waiting[:_MOST_TOLD])) + more


def _why(pending_: Pending) -> str:
    if isinstance(pending_, PendingData):
        return pending_.problem
    return f"{pending_.identifier} must be fresh up to {pending_.required.isoformat()} but {_why_not(pending_)}"


def _why_not(parent: PendingParent) -> str:
    if parent.suspended:
        return parent.suspended
    if parent.lost_tick:
        return f"its run for {parent.lost_tick.isoformat()} failed, and no other comes in time"
    if parent.failed:
        return _NOT_WELL[parent.failed]
    if parent.data_timestamp:
        return f"is fresh only up to {parent.data_timestamp.isoformat()}"
    return "has not been refreshed by schedule yet"
