"""Requests to refresh a table: parsing, the partitions that they replace, and their action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import next_tick, previous_tick
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.partition_dates import check_dates, normalised, partitions_between, scheduled_partitions
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet, check_spec, split_partitions
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import Freshness, elapsed, is_ahead
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import StreamPosition, Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow_dynamic_tables.services.source_progress import Growth
    from airflow_dynamic_tables.services.workspace import Workspace

MOST_PARTITIONS = 10_000
"""Maximum number of partitions of a request. More would produce a query that Spark plans for minutes. A year has 8,784 hours."""

_YEARS = (200, 9800)
"""Valid years of schedule times: in any time zone, and with the maximum freshness of a century, they are valid dates."""

NEVER = datetime.fromtimestamp(0, UTC)
"""A time before all relevant schedule times, for data that is not known to be complete up to any time."""

_INSTANT = timedelta(seconds=1)
"""Turns "at or before" into "before", because ticks are whole minutes."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A dynamic table that another one reads, and its schedule. Without ``cron`` it is refreshed by asset updates or a loop.

    ``last_tick`` is its last tick in time for the waiting refresh, see ``in_time`` in
    :mod:`airflow_dynamic_tables.services.refresh.upstream`. ``workflow_id`` is the workflow that refreshes it. ``max_lag`` is how
    far it may be behind the schedule time of the refresh that reads it, if the table that reads it declares that.
    """

    identifier: TableIdentifier
    format: str
    cron: str | None
    timezone: str
    freshness: Freshness
    last_tick: datetime | None = None
    workflow_id: str = ""
    max_lag: timedelta | None = None

    @classmethod
    def of(cls, table: DynamicTable, max_lag: timedelta | None = None) -> Parent:
        """Return a table as a parent."""
        schedule = (table.cron, table.timezone, table.freshness)
        return cls(table.identifier, table.format, *schedule, workflow_id=table.workflow_id, max_lag=max_lag)

    def required(self, schedule_time: datetime) -> datetime:
        """Return the time up to which it must be fresh for a refresh.

        That is its latest tick, or without cron one period before. ``max_lag`` permits an earlier time, and demands no later one.
        """
        if self.cron is None:
            regular = elapsed(schedule_time, -self.freshness.period)
        else:
            regular = previous_tick(self.cron, self.timezone, schedule_time)
        return regular if self.max_lag is None else min(regular, elapsed(schedule_time, -self.max_lag))

    def serves_until(self, fresh: datetime) -> datetime:
        """Return the last schedule time for which it is fresh enough if it is fresh up to a time."""
        if self.cron is None:
            regular = elapsed(fresh, self.freshness.period)
        else:
            regular = next_tick(self.cron, self.timezone, fresh) - _INSTANT
        return regular if self.max_lag is None else max(regular, elapsed(fresh, self.max_lag))

    def last_tick_before(self, until: datetime) -> datetime | None:
        """Return its latest tick before that time."""
        return previous_tick(self.cron, self.timezone, until - _INSTANT) if self.cron else None


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream: the plan of its job, its position in the stream, and the position that its rows follow.

    Rows that follow no position are the first of their stream, and replace the table.
    """

    plan: RefreshPlan
    position: StreamPosition
    follows: StreamPosition | None = None


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """A request to refresh one table.

    * ``token`` is new for every attempt; ``owner`` is the same for all attempts of one piece of work.
    * ``partitions`` are the partitions to refresh by hand; ``full_refresh`` replaces the complete table; otherwise the schedule
      time determines the partitions.
    * ``updated`` is set if asset updates triggered the request: their partitions, which are refreshed in addition.
    * ``catches_up``: also refresh the partitions of missed ticks, as a scheduled request does. :mod:`~.catching_up` sets
      ``missed``, ``since`` (the end of the unbroken ticks) and the sentence ``begins``.
    * ``is_reported``: the caller learns of the version from a report, see
      :mod:`~airflow_dynamic_tables.services.maintenance.sweeping`.
    * ``until`` is the schedule time that was asked for, if missed ticks are made first, for an earlier one.
    * ``is_scheduled``: not requested by a user, so the refresh may be skipped if nothing has changed.
    * ``force``: refresh a suspended table, which stays suspended.
    * ``replaces_frozen``: frozen partitions that a user asked for are replaced, too.
    * ``batch``: a batch of a stream, written by a job that is already running.
    * ``is_one_off``: the table is created once and has no data timestamp.
    * ``is_by_hand``: the parents are only needed up to the time of the partitions.
    * ``waits``: if false, the ``parents`` and awaited data are read as they are; if they lag, they are ``complete_until`` an
      earlier time.
    * ``unbroken``: whether no tick of the table is missing afterwards, if this was determined.
    * ``only_dirty``: refresh the partitions whose sources changed after they were made, and no others.

    :raises ConfigurationError: if two of partitions, a full refresh and dirty partitions are requested, or a partition does not
        fit the table.
    """

    table: DynamicTable
    sources: Mapping[TableIdentifier, Source]
    schedule_time: datetime
    token: str
    owner: str
    partitions: PartitionSet | None = None
    full_refresh: bool = False
    updated: PartitionSet | None = None
    is_reported: bool = False
    catches_up: bool = False
    missed: PartitionSet = NO_PARTITIONS
    since: datetime | None = None
    begins: str = ""
    is_scheduled: bool = False
    batch: StreamBatch | None = None
    force: bool = False
    is_one_off: bool = False
    is_by_hand: bool = False
    waits: bool = True
    parents: tuple[Parent, ...] = ()
    complete_until: datetime | None = None
    unbroken: bool | None = None
    only_dirty: bool = False
    replaces_frozen: bool = False
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Check that the request is valid."""
        if self.only_dirty and (self.full_refresh or self.partitions is not None):
            raise ConfigurationError("dirty partitions, partition and full_refresh exclude each other; give one of them.")
        if self.partitions is None:
            return
        if self.full_refresh:
            raise ConfigurationError("partition and full_refresh exclude each other; give one of them.")
        try:
            for spec in () if self.partitions.is_whole else self.partitions:
                check_spec(spec, self.table.partition_keys)
        except ValueError as error:
            raise ConfigurationError(f"partition: {shown(str(error))}.") from error

    @property
    def is_incremental(self) -> bool:
        """Whether the changes of the sources determine which partitions are replaced, not the schedule time."""
        is_asked_for = self.partitions is not None or self.full_refresh or self.only_dirty or self.batch is not None
        return (self.is_scheduled or self.catches_up) and not is_asked_for and self.table.is_incremental

    @property
    def searches(self) -> bool:
        """Whether it searches for partitions that are out of date, not only for those that a user named."""
        return self.only_dirty or (self.is_scheduled and self.partitions is None and not self.full_refresh)

    @property
    def thaws(self) -> bool:
        """Whether it replaces frozen partitions: only if a user named them and insists."""
        return self.replaces_frozen and (self.partitions is not None or self.full_refresh or self.only_dirty)

    @property
    def latest_time(self) -> datetime:
        """The schedule time that was asked for."""
        return self.until or self.schedule_time

    @property
    def has_watermark(self) -> bool:
        """Whether the partitions of a source, not the schedule, determine which partitions of the table are replaced."""
        return any(source.watermark is not None for source in self.sources.values())


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped refresh and its reason. No tick ``up_to`` a time has to be refreshed, if that is known."""

    reason: Reason
    up_to: datetime | None = None


def in_time_zone(time: datetime, table: DynamicTable) -> datetime:
    """Convert a requested time to the table's time zone if it has none.

    :raises ConfigurationError: if it is so close to the limits of the calendar that its partitions may be beyond them.
    """
    if not _YEARS[0] <= time.year <= _YEARS[1]:
        message = f"schedule_time {time.isoformat()} cannot be planned for: write a time of the years {_YEARS[0]} to {_YEARS[1]}."
        raise ConfigurationError(message)
    return time if time.tzinfo is not None else time.replace(tzinfo=ZoneInfo(table.timezone))


def asked_time(time: datetime, table: DynamicTable, now: datetime) -> datetime:
    """Validate the schedule time of a refresh by hand; in the table's time zone if it has none.

    :raises ConfigurationError: if it is in the future, because it would block all scheduled refreshes until then; or as for
        :func:`in_time_zone`.
    """
    asked = in_time_zone(time, table)
    if is_ahead(asked, now):
        raise ConfigurationError(
            f"schedule_time {asked.isoformat()} is in the future; no data is as fresh as that yet, so ask for a time up to now."
        )
    return asked


def latest_schedule_time(table: DynamicTable, now: datetime) -> datetime:
    """Return the default schedule time: the table's latest tick, or the current time if the table has no schedule."""
    return previous_tick(table.cron, table.timezone, now) if table.cron else now.astimezone(ZoneInfo(table.timezone))


def parse_partitions(text: str, formatters: Mapping[str, str] | None = None) -> PartitionSet:
    """Parse partitions like ``ds=2024-01-01/hh=03``, and ranges like ``ds=2024-01-01..ds=2024-01-31``, separated by commas.

    :param formatters: the date formatters of the table, which ranges require.
    :raises ValueError: if a partition is malformed, or there are more than a request may have.
    """
    specs: list[Mapping[str, str]] = []
    for ends in split_partitions(text):
        between = ends if len(ends) == 1 else partitions_between(ends[0], ends[1], formatters or {})
        specs.extend(islice(between, MOST_PARTITIONS + 1))
        if len(specs) > MOST_PARTITIONS:
            raise ValueError(
                f"these are more than the {MOST_PARTITIONS:,} partitions that one refresh takes; ask for a part of them"
            )
    return PartitionSet.of(specs)


def requested_partitions(request: RefreshRequest) -> PartitionSet:
    """Return the partitions that a request replaces."""
    if request.full_refresh or request.batch is not None or request.is_incremental:
        return WHOLE_TABLE
    if request.partitions is not None:
        return request.partitions
    table = request.table
    scheduled = scheduled_partitions(request.schedule_time, table.freshness, table.formatters, table.timezone)
    return request.missed.union(scheduled).union(request.updated or NO_PARTITIONS)


def planned_partitions(request: RefreshRequest, columns: Sequence[Column], growth: Growth | None = None) -> PartitionSet:
    """Return the partitions that a request replaces, with values normalised to the column types, so that leases compare equal.

    If sources have a watermark, that determines the complete time partitions instead of the schedule.

    :param columns: the columns of the table; empty before its first commit.
    :raises ConfigurationError: if a value does not fit its column's type or its date formatter.
    """
    try:
        requested = requested_partitions(request)
        if growth is not None and request.partitions is None and request.table.formatters and not request.full_refresh:
            requested = growth.published.union(request.updated or NO_PARTITIONS)
        partitions = normalised(requested, columns)
        for spec in () if request.partitions is None or partitions.is_whole else partitions:
            check_dates(spec, request.table.formatters)
    except ValueError as error:
        raise ConfigurationError(f"{request.table.identifier}: {error}.") from error
    return partitions


def check_partitions(workspace: Workspace, request: RefreshRequest) -> None:
    """Check the partitions of a run by hand, so that an invalid run fails before it waits for parents."""
    if request.partitions is not None:
        entry = workspace.find_entry(request.table.identifier)
        planned_partitions(request, entry.columns if entry is not None else ())  # the first refresh registers the table


def overtaken(
    request: RefreshRequest, partitions: PartitionSet, current: Version | None, fresh: datetime | None
) -> Skipped | None:
    """Skip a refresh of the complete table for an earlier schedule time, because it would overwrite newer data.

    An incremental refresh counts as one, because it makes the complete table fresh up to its schedule time.
    """
    if request.batch is not None and request.batch.follows is not None:
        return None  # the batch replaces nothing
    if not (partitions.is_whole or request.is_incremental) or current is None or fresh is None or request.schedule_time >= fresh:
        return None
    text = (
        f"{request.table.identifier} is already fresh up to {fresh.isoformat()} (version {current.number}); "
        f"a refresh of the complete table for {request.schedule_time.isoformat()} would overwrite newer data."
    )
    return Skipped(Reason(ReasonCode.ALREADY_FRESH, text))


def not_due(table: DynamicTable, tick: datetime, date: datetime, fresh: datetime | None) -> str | None:
    """Return why a run for several tables skips this one: it has no tick at that time and has reached its latest tick.

    :param tick: the table's latest tick at or before the date of the run.
    """
    if tick == date or fresh is None or fresh < tick:
        return None
    return (
        f"{date.isoformat()} is no tick of {table.identifier} ({table.cron}), "
        f"which is fresh up to its newest one, {tick.isoformat()}."
    )


def action_of(
    request: RefreshRequest, partitions: PartitionSet, current: Version | None, *, merges: bool = False
) -> tuple[RefreshAction, Reason]:
    """Return the action of a refresh and its reason."""
    if current is None:
        action = RefreshAction.INITIALIZE
    elif merges:
        action = RefreshAction.MERGE
    else:
        action = RefreshAction.FULL if partitions.is_whole else RefreshAction.PARTITIONS
    if request.batch is not None:
        position = request.batch.position
        streamed = Reason(ReasonCode.STREAMED, f"batch {position.batch} of stream {position.stream}")
        return (RefreshAction.ADD if request.batch.follows is not None else action), streamed
    if request.is_one_off:
        return action, Reason(ReasonCode.CREATED_AS, "replaced by a query" if current is not None else "made of a query")
    if request.full_refresh:
        return action, Reason(ReasonCode.FULL_REFRESH, "full refresh asked for")
    if request.partitions is not None:
        return action, Reason(ReasonCode.ASKED_FOR, f"asked for: {partitions.brief}")
    if request.only_dirty:
        return action, Reason(ReasonCode.LATE_DATA, f"dirty partitions asked for: {partitions.brief}")
    tick = request.schedule_time.isoformat()
    if request.updated is not None:
        return action, Reason(ReasonCode.UPDATED, f"an asset was updated, for {tick}: {partitions.brief}")
    begins = f"; {request.begins}" if request.begins else ""
    return action, Reason(ReasonCode.SCHEDULED, f"scheduled for {tick}: {partitions.brief}{begins}")
