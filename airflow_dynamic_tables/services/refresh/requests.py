"""Wishes to refresh a table: how people write them, what they replace, and whether there is anything to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.refresh.actions import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.cron import next_tick, previous_tick
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.wall_clock import elapsed, is_ahead
from airflow_dynamic_tables.core.tables.dates import partitions_between, scheduled_partitions
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet, check_spec, split_partitions
from airflow_dynamic_tables.core.tables.versions import StreamPosition, Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError

MOST_PARTITIONS = 10_000
"""Partitions that somebody may ask for at once: more make a query that Spark plans for minutes. A year has 8,784 hours."""

_YEARS = (200, 9800)
"""Years of schedule times: with a century of freshness, the longest one, and in any time zone they are within the calendar."""

NEVER = datetime.fromtimestamp(0, UTC)
"""Before all schedule times that matter: up to then is complete what is not known to be complete at all."""

_INSTANT = timedelta(seconds=1)
"""What makes "before" of "at or before": ticks are whole minutes."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A dynamic table that another one reads, and its schedule: without ``cron``, updates of assets or a loop refresh it.

    ``last_tick`` is the last one that comes in time for the refresh that waits, see ``in_time`` in
    :mod:`airflow_dynamic_tables.services.refresh.upstream`. ``workflow_id`` is the workflow that refreshes it.
    """

    identifier: TableIdentifier
    format: str
    cron: str | None
    timezone: str
    freshness: Freshness
    last_tick: datetime | None = None
    workflow_id: str = ""

    def required(self, schedule_time: datetime) -> datetime:
        """Up to when it has to be fresh for a refresh at that time: its latest tick; else its own promise counts."""
        if self.cron is None:
            return elapsed(schedule_time, -self.freshness.period)
        return previous_tick(self.cron, self.timezone, schedule_time)

    def serves_until(self, fresh: datetime) -> datetime:
        """The last schedule time for which it is fresh enough when it is fresh up to that time."""
        if self.cron is None:
            return elapsed(fresh, self.freshness.period)
        return next_tick(self.cron, self.timezone, fresh) - _INSTANT

    def last_tick_before(self, until: datetime) -> datetime | None:
        """Its latest tick before that time."""
        return previous_tick(self.cron, self.timezone, until - _INSTANT) if self.cron else None


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream: the plan that its job runs by, how far the table is of the stream then, and what its rows follow.

    Rows that follow nothing are the first of their stream, and replace the table.
    """

    plan: RefreshPlan
    position: StreamPosition
    follows: StreamPosition | None = None


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """A wish to refresh one table.

    ``token`` is new for every attempt, ``owner`` the same for all attempts of one piece of work. ``partitions`` names the ones
    to refresh by hand; ``full_refresh`` replaces the whole table; otherwise the schedule time decides. ``updated`` is not
    ``None`` when updates of assets asked: the partitions that they name, which are refreshed beside. A request that
    ``catches_up``, as a scheduled one does, also makes the partitions of missed ticks; :mod:`~.catching_up` finds them
    (``missed``), those ``since`` the end of its unbroken ticks, with a sentence about them (``begins``). ``is_reported`` says
    that whoever asks hears of the version by a report, see :mod:`~airflow_dynamic_tables.services.maintenance.reports`;
    ``is_scheduled`` that nobody asked for anything, so that the refresh may be left out while nothing moves. With ``force`` a
    suspended table is refreshed, too, and stays suspended. A ``batch`` of a stream is written by a job that runs already. A
    table that ``is_one_off`` is made once, and is up to no time. One that ``is_by_hand`` needs its parents for the time of its
    partitions only. One that does not ``waits`` takes its ``parents`` and the data that it awaits as they are; when they lag
    behind, they are ``complete_until`` an earlier time. ``unbroken`` says whether no tick of the table is missing
    afterwards, once that was looked for.

    :raises ConfigurationError: when both are asked for, or a partition does not fit the table.
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

    def __post_init__(self) -> None:
        """Check that it can be fulfilled."""
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
    def has_watermark(self) -> bool:
        """Whether a source tells by its partitions which ones of the table are replaced, and no schedule does."""
        return any(source.watermark is not None for source in self.sources.values())


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing was done, and why. The ticks ``up_to`` a time need nothing done, where that was found."""

    reason: Reason
    up_to: datetime | None = None


def in_time_zone(time: datetime, table: DynamicTable) -> datetime:
    """A time that somebody asked for, in the table's time zone when it has none.

    :raises ConfigurationError: when it is so near to the end of the calendar that its partitions may be beyond it.
    """
    if not _YEARS[0] <= time.year <= _YEARS[1]:
        message = f"schedule_time {time.isoformat()} cannot be planned for: write a time of the years {_YEARS[0]} to {_YEARS[1]}."
        raise ConfigurationError(message)
    return time if time.tzinfo is not None else time.replace(tzinfo=ZoneInfo(table.timezone))


def asked_time(time: datetime, table: DynamicTable, now: datetime) -> datetime:
    """A schedule time that a refresh was asked for by hand, in the table's time zone when it has none.

    :raises ConfigurationError: when it is in the future: it would keep every scheduled refresh from the table until then. Or
        as for :func:`in_time_zone`.
    """
    asked = in_time_zone(time, table)
    if is_ahead(asked, now):
        raise ConfigurationError(
            f"schedule_time {asked.isoformat()} is in the future; no data is as fresh as that yet, so ask for a time up to now."
        )
    return asked


def latest_schedule_time(table: DynamicTable, now: datetime) -> datetime:
    """What to refresh for when nobody says: the table's latest tick; now, when nothing schedules it."""
    return previous_tick(table.cron, table.timezone, now) if table.cron else now.astimezone(ZoneInfo(table.timezone))


def parse_partitions(text: str, formatters: Mapping[str, str] | None = None) -> PartitionSet:
    """Parse partitions like ``ds=2024-01-01/hh=03``, and ranges like ``ds=2024-01-01..ds=2024-01-31``, separated by commas.

    :param formatters: the date formatters of the table, without which there are no ranges.
    :raises ValueError: when one is malformed, or these are more than one refresh takes.
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
    """The partitions a request replaces."""
    if request.full_refresh or request.batch is not None:
        return WHOLE_TABLE
    if request.partitions is not None:
        return request.partitions
    table = request.table
    scheduled = scheduled_partitions(request.schedule_time, table.freshness, table.formatters, table.timezone)
    return request.missed.union(scheduled).union(request.updated or NO_PARTITIONS)


def overtaken(
    request: RefreshRequest, partitions: PartitionSet, current: Version | None, fresh: datetime | None
) -> Skipped | None:
    """A refresh of the whole table for an older schedule time would overwrite newer data: skip it.

    :param fresh: up to when the table is fresh.
    """
    if request.batch is not None and request.batch.follows is not None:
        return None  # it replaces nothing
    if not partitions.is_whole or current is None or fresh is None or request.schedule_time >= fresh:
        return None
    text = (
        f"{request.table.identifier} is already fresh up to {fresh.isoformat()} (version {current.number}); "
        f"a refresh of the whole table for {request.schedule_time.isoformat()} would overwrite newer data."
    )
    return Skipped(Reason(ReasonCode.ALREADY_FRESH, text))


def not_due(table: DynamicTable, tick: datetime, date: datetime, fresh: datetime | None) -> str | None:
    """Why a run for several tables leaves this one out: its time is a tick of others, and this one is not behind its own.

    :param tick: the table's newest one that is not after the date of the run.
    :param fresh: up to when the table is fresh.
    """
    if tick == date or fresh is None or fresh < tick:
        return None
    return (
        f"{date.isoformat()} is no tick of {table.identifier} ({table.cron}), "
        f"which is fresh up to its newest one, {tick.isoformat()}."
    )


def action_of(request: RefreshRequest, partitions: PartitionSet, current: Version | None) -> tuple[RefreshAction, Reason]:
    """What kind of refresh this is, and why."""
    anew = RefreshAction.FULL if partitions.is_whole else RefreshAction.PARTITIONS
    action = RefreshAction.INITIALIZE if current is None else anew
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
    tick = request.schedule_time.isoformat()
    if request.updated is not None:
        return action, Reason(ReasonCode.UPDATED, f"an asset was updated, for {tick}: {partitions.brief}")
    begins = f"; {request.begins}" if request.begins else ""
    return action, Reason(ReasonCode.SCHEDULED, f"scheduled for {tick}: {partitions.brief}{begins}")
