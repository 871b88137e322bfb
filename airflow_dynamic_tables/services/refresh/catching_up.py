"""Catch-up: a scheduled refresh also refreshes the partitions of ticks that failed or never ran.

Therefore the data timestamp of a table with time partitions is the end of its unbroken ticks: the table has the partitions of
every tick up to it. A refresh by hand replaces only the partitions that it names, and advances the data timestamp only as far
as no tick is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, takewhile
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import ticks
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import normalised, partitions_within, scheduled_partitions, start_of
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import Initial
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import Freshness, is_ahead, on_the_wall
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, ConflictError, DynamicTableError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.preview import TablePlan
from airflow_dynamic_tables.services.refresh.requests import NEVER, RefreshRequest, requested_partitions
from airflow_dynamic_tables.services.tables.entries import registered_or_new
from airflow_dynamic_tables.services.tables.source_reads import found_fresh, fresh_until
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

log = logging.getLogger(__name__)

MOST_PARTITIONS = 1_000
"""Limit of missed or late partitions of one commit, unless a single tick has more. The next commit continues from there."""

_LATEST = 50
"""Limit of refreshes read from the history for partitions refreshed out of order."""

_ALL = 100_000
"""Limit of refreshes read once for partitions left out by earlier releases."""

_OF_ANY_VERSION = 10_000
"""Limit of refreshes read from the history if the table's current version number is unknown."""

_INSTANT = timedelta(microseconds=1)

_REPEATED = timedelta(hours=1)
"""The longest backward clock change at the end of daylight saving time."""

Made = Mapping[frozenset[tuple[str, str | None]], datetime]
"""Refreshed partitions, by the items of their specs, with the last tick that each counts for."""


@dataclass(frozen=True, slots=True)
class TimeTable:
    """The schedule of a table and the naming of its time partitions.

    :param cron: ``None`` for a table that is refreshed by asset updates or a loop.
    :param formatters: partition column to Java date pattern; at least one.
    """

    cron: str | None
    timezone: str
    freshness: Freshness
    formatters: Mapping[str, str]

    def steps(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, PartitionSet]]:
        """Yield the ticks in ``(after, until]``, oldest first, each with its partitions.

        Without a schedule each partition is a step, and the last one ends at ``until``.

        :param after: timezone-aware, like ``until``.
        """
        if self.cron is None:
            yield from self._stretch(after, until)
            return
        for tick in ticks(self.cron, self.timezone, after + _INSTANT, until + _INSTANT):
            yield tick, scheduled_partitions(tick, self.freshness, self.formatters, self.timezone)

    def _stretch(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, PartitionSet]]:
        """Yield the partitions with rows of a time range; one that has not ended is omitted unless it is the only one.

        A partition ends at the first moment at which local time reaches its end.
        """
        zone = ZoneInfo(self.timezone)
        first, last = (on_the_wall(time.astimezone(zone)) for time in (after, until))
        # If a backward clock change lies in between, local times may be outside the range of those at both ends.
        first = min(first, last - (until - after))
        if until.astimezone(zone).fold:
            last += _REPEATED
        within = list(partitions_within(first, last, self.formatters))
        over = [partition for partition in within if partition.end <= last] or within
        for number, partition in enumerate(over, 1):
            ends = min(partition.end.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
            yield until if number == len(over) else min(max(ends, after), until), PartitionSet.of([partition.spec])

    def oldest(self, partitions: Iterable[Mapping[str, str | None]]) -> datetime | None:
        """Return the start of the oldest of some partitions; ``None`` if none of them is a time."""
        starts: list[datetime] = []
        for spec in partitions:
            with suppress(ValueError):  # null, or a format of an earlier definition
                starts.append(start_of(spec, self.formatters))
        return min(starts).replace(tzinfo=ZoneInfo(self.timezone)) if starts else None

    def batch(self, after: datetime, until: datetime, most: int) -> tuple[datetime, PartitionSet]:
        """Return the last of the first ticks after a time and their partitions: up to ``until``, or about ``most`` partitions."""
        reached = after
        taken: dict[frozenset[tuple[str, str | None]], Mapping[str, str | None]] = {}
        for tick, partitions in self.steps(after, until):
            more = {frozenset(spec.items()): spec for spec in partitions}
            if taken and len(taken.keys() | more.keys()) > most:
                return reached, PartitionSet.of(taken.values())
            reached = tick
            taken |= more
        return until, PartitionSet.of(taken.values())


def missing_partitions(times: TimeTable, columns: Sequence[Column], made: Made, fresh: datetime, until: datetime) -> PartitionSet:
    """Return the partitions of ticks in ``(fresh, until]`` that no refresh has made, limited to one commit.

    :param fresh: the end of the unbroken ticks.
    """
    missing = NO_PARTITIONS
    for tick, planned in times.steps(fresh, until):
        missing = missing.union(lacking(normalised(planned, columns), tick, made))
        if len(missing) >= MOST_PARTITIONS:
            break
    return missing


def earlier_holes(workspace: Workspace, registered: RegisteredTable, times: TimeTable, fresh: datetime) -> PartitionSet:
    """Return the partitions missing in a table that an earlier release considered fresh, limited to one commit.

    These are partitions of ticks since the oldest partition that no refresh has made in time. If the history has no refresh of a
    partition, it is missing if the table does not contain it.

    :param fresh: the time up to which the earlier release considered the table fresh.
    :raises DynamicTableError: if the catalog does not list the partitions.
    """
    identifier = registered.identifier
    specs = workspace.catalog(identifier.catalog).list_partitions(identifier.path)
    present = [{key: spec.get(key) for key in times.formatters} for spec in specs]
    oldest = times.oldest(present)
    if oldest is None:
        return NO_PARTITIONS
    current = registered.current()
    there = {frozenset(spec.items()) for spec in present}
    made = _made_by(history(workspace, identifier, current.number if current is not None else None, _ALL))
    holes: list[Mapping[str, str | None]] = []
    for tick, planned in times.steps(oldest, fresh):
        late = lacking(normalised(planned, registered.columns), tick, made)
        holes += (spec for spec in late if _last_made(spec, made) is not None or frozenset(spec.items()) not in there)
        if len(holes) >= MOST_PARTITIONS:
            break
    return PartitionSet.of(holes)


def _made_by(refreshes: Iterable[Refresh], *more: tuple[datetime, PartitionSet]) -> Made:
    """Return the partitions that refreshes have made.

    :param more: the time and the partitions of a refresh that has no record yet.
    """
    made: dict[frozenset[tuple[str, str | None]], datetime] = {}
    for time, partitions in (*more, *((refresh.made_for, refresh.partitions) for refresh in refreshes)):
        for spec in partitions:
            key = frozenset(spec.items())
            made[key] = max(time, made.get(key, time))
    return made


def lacking(planned: PartitionSet, tick: datetime, made: Made) -> PartitionSet:
    """Return the partitions of a tick that no refresh has made at or after it; before it, their time was not over."""
    return PartitionSet.of(spec for spec in planned if (last := _last_made(spec, made)) is None or last < tick)


def _last_made(spec: Mapping[str, str | None], made: Made) -> datetime | None:
    """Return the last tick for which a partition was made, alone or by a spec that omits keys and covers it."""
    covering = chain.from_iterable(combinations(spec.items(), size) for size in range(len(spec) + 1))
    return max((made[key] for key in map(frozenset, covering) if key in made), default=None)


def history(workspace: Workspace, identifier: TableIdentifier, current: int | None, most: int = _LATEST) -> list[Refresh]:
    """Return the refreshes whose partitions the table has, newest version first: those since a rollback or an undone version."""
    return standing(workspace.ledger.list_refreshes(identifier, most), current)


def made_before(workspace: Workspace, identifier: TableIdentifier, current: int | None) -> Made:
    """Return the partitions made by :func:`history`, for :func:`lacking`."""
    return _made_by(history(workspace, identifier, current))


def standing(refreshes: Iterable[Refresh], current: int | None) -> list[Refresh]:
    """Return the refreshes whose rows the table may have, newest version first, up to a rollback or an undone version.

    An undone version does not end the list if its number is greater than the current one or was reused. Then another engine has
    removed it from the table, or it belongs to a dropped table, or it precedes a restored dump.
    """
    made = [one for one in refreshes if one.version and one.state is not RefreshState.SKIPPED]
    again = {one.version for one in made if one.state is not RefreshState.UNDONE}

    def is_of_the_table(one: Refresh) -> bool:
        is_gone = one.version in again or (one.version or 0) > (current or 0)
        return one.state is not RefreshState.UNDONE or not is_gone

    newest_first = sorted(filter(is_of_the_table, made), key=lambda one: one.version or 0, reverse=True)
    return list(takewhile(lambda one: one.is_made_of_sources, newest_first))


def time_table(table: DynamicTable) -> TimeTable:
    """Return the schedule and time partitions of a table with time partitions."""
    return TimeTable(table.cron, table.timezone, table.freshness, table.formatters)


def caught_up(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> RefreshRequest:
    """Add the partitions of missed ticks to a request; return it unchanged if it does not catch up.

    If there are too many partitions for one commit, the returned request has an earlier schedule time and its own token; later
    commits follow for the rest.

    :param request: a request without watermark sources.
    """
    current = registered.current()
    asked_for = request.partitions is not None or request.full_refresh or request.batch is not None
    if asked_for or not request.table.formatters or request.is_incremental:
        return request
    if not (request.catches_up or request.is_scheduled):
        return replace(request, begins="it starts at the requested schedule time") if current is None else request
    fresh = _unbroken_until(workspace, registered)
    if fresh is not None and current is not None:
        made_up = replace(_after(request, fresh, "it makes up for"), since=fresh)
        return _with_earlier_holes(workspace, registered, made_up, fresh)
    return _first(workspace, request, registered)


def with_catch_up(
    workspace: Workspace, plan: TablePlan, table: DynamicTable, sources: Mapping[TableIdentifier, Source]
) -> TablePlan:
    """Add the missed ticks that a refresh would catch up on to its plan, without side effects. Watermark sources are skipped."""
    request = RefreshRequest(table, sources, plan.schedule_time, token="", owner="", catches_up=True)
    if request.has_watermark or request.is_incremental or not table.formatters:
        return plan
    try:
        found = caught_up(workspace, request, registered_or_new(workspace, table))
    except (CatalogError, ConfigurationError) as error:
        return replace(plan, catch_up_reason=f"it is not known which ticks are missing: {error}")
    return replace(plan, catch_up=None if found.missed.is_empty else found.missed, catch_up_reason=found.begins or None)


def _unbroken_until(workspace: Workspace, registered: RegisteredTable) -> datetime | None:
    """Return the end of the unbroken ticks; that of an earlier version if a wrong clock set the current data timestamp."""
    current = registered.current()
    if (fresh := fresh_until(workspace, current)) is not None or current is None or current.data_timestamp is None:
        return fresh
    earlier = (fresh_until(workspace, version) for version in reversed(registered.loaded.versions()))
    known = next((time for time in earlier if time is not None), None)
    log.warning("The data timestamp of the table, %s, is in the future: %s counts.", current.data_timestamp, known or "none")
    return known


def _first(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> RefreshRequest:
    """Return the first scheduled refresh of a table. Rows of an adopted table, or refreshed by hand, are not replaced."""
    definition, current = request.table, registered.current()
    if definition.start_date is not None and definition.start_date < request.schedule_time:
        return _after(request, definition.start_date, "it starts with start_date:")
    if current is not None and (oldest := _oldest(workspace, definition, current)) is not None:
        return _after(request, oldest, "it starts with the oldest requested partition:")
    if definition.initial is Initial.LATEST:
        return replace(request, begins="it starts with the latest tick (initial: latest)")
    if current is not None or registered.loaded.layout() is not None:
        return replace(request, begins="it starts with the latest tick, because the table already has other rows")
    return replace(request, missed=WHOLE_TABLE, begins="it starts with all partitions of its sources (initial: all)")


def _oldest(workspace: Workspace, table: DynamicTable, current: Version) -> datetime | None:
    """Return the start time of the oldest partition refreshed by hand; ``None`` if unknown.

    If the number of the table's current version is unknown, all refreshes of the history are considered.
    """
    known = history(workspace, table.identifier, current.number)
    refreshes = known if current.number else workspace.ledger.list_refreshes(table.identifier, _OF_ANY_VERSION)
    made = (refresh for refresh in refreshes if refresh.version and not refresh.partitions.is_whole)
    return time_table(table).oldest(spec for refresh in made for spec in refresh.partitions)


def _with_earlier_holes(
    workspace: Workspace, registered: RegisteredTable, request: RefreshRequest, fresh: datetime
) -> RefreshRequest:
    """Add the partitions left out by earlier releases, which set the data timestamp to the newest refreshed tick.

    :param fresh: the time up to which those releases considered the table fresh.
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
    """Return the request with all ticks after a time, limited to the partitions of one commit."""
    reached, partitions = time_table(request.table).batch(fresh, request.schedule_time, MOST_PARTITIONS)
    if reached < request.schedule_time:
        token = str(uuid5(NAMESPACE_URL, f"{request.token}/{reached.isoformat()}"))
        sentence = f"{begins} {partitions.brief}; the ticks from then up to {request.schedule_time.isoformat()} follow"
        until = request.latest_time
        return replace(request, token=token, schedule_time=reached, until=until, missed=partitions, begins=sentence)
    own = requested_partitions(request)
    missed = PartitionSet.of(spec for spec in partitions if not own.covers(spec))
    return request if missed.is_empty else replace(request, missed=missed, begins=f"{begins} {missed.brief}")


def fresh_then(
    workspace: Workspace, registered: RegisteredTable, request: RefreshRequest, partitions: PartitionSet, *, has_watermark: bool
) -> datetime | None:
    """Return the data timestamp of a table after a refresh; ``None`` if the refresh sets none.

    :param has_watermark: whether a watermark, not a schedule, determines which partitions are complete.
    :raises ConflictError: if the table lacks ticks that it had when the refresh began.
    """
    if request.is_one_off:
        return None
    current = registered.current()
    reached = None if request.complete_until == NEVER else request.complete_until or request.schedule_time
    if has_watermark or not request.table.formatters:
        # Partitions named by hand do not advance the time up to which the table is fresh.
        return reached if request.partitions is None else found_fresh(workspace, current)
    if partitions.is_whole:
        return reached
    if request.table.is_incremental:
        return reached if request.is_incremental else found_fresh(workspace, current)
    fresh = fresh_until(workspace, current)
    if (request.catches_up or request.is_scheduled) and request.partitions is None:
        _check_still_fresh(workspace, request, current)
        return max(filter(None, (reached, fresh)), default=None)
    if fresh is None:
        begins = current is None and request.partitions is None
        return reached if begins else None
    return _moved_on(workspace, registered, request, partitions, fresh)


def _check_still_fresh(workspace: Workspace, request: RefreshRequest, current: Version | None) -> None:
    """Check that the time up to which the table is fresh has not moved backwards since the missed ticks were determined."""
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
    """Return the end of the unbroken ticks after these partitions are refreshed.

    :param fresh: the time up to which the table is fresh before.
    """
    current = registered.current()
    own = (request.complete_until or request.schedule_time, partitions)
    made = _made_by(history(workspace, request.table.identifier, current.number if current else None), own)
    for tick, planned in time_table(request.table).steps(fresh, max(made.values())):
        if not lacking(normalised(planned, registered.columns), tick, made).is_empty:
            break
        fresh = tick
    return fresh


def is_unbroken(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, current: Version | None) -> bool:
    """Return whether no tick before the data timestamp is missing after these partitions are refreshed."""
    if request.unbroken is not None:
        return request.unbroken
    if current is None or partitions.is_whole or not request.table.formatters or request.is_incremental:
        return True
    made = workspace.ledger.get_refresh(current.token)
    return made is not None and made.unbroken is True
