"""The ticks of a table with time partitions: which partitions they make, and which of these are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, takewhile
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.cron import ticks
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.wall_clock import on_the_wall
from airflow_dynamic_tables.core.tables.dates import partitions_within, scheduled_partitions, start_of
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.workspace import Workspace

MOST_PARTITIONS = 1_000
"""Partitions that one commit of a catch-up replaces, unless a single tick has more. The next commit goes on from there."""

_LATEST = 50
"""Refreshes of the history that are looked at for partitions that were made out of turn."""

_ALL = 100_000
"""Refreshes that are looked at once, for the holes of earlier releases."""

_INSTANT = timedelta(microseconds=1)

_REPEATED = timedelta(hours=1)
"""How far autumn sets the clock back, at most."""

Made = Mapping[frozenset[tuple[str, str | None]], datetime]
"""Which partitions refreshes have made, by the items of their specs, and the last tick that each counts for."""


@dataclass(frozen=True, slots=True)
class TimeTable:
    """When a table is refreshed, and how its partitions are named by time.

    :param cron: ``None`` for a table that updates of assets or a loop refresh.
    :param formatters: partition column to Java date pattern; at least one.
    """

    cron: str | None
    timezone: str
    freshness: Freshness
    formatters: Mapping[str, str]

    def steps(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, PartitionSet]]:
        """The ticks after one time up to another, oldest first, each with its partitions.

        Without a schedule each partition is a step, and the last one ends at ``until``.

        :param after: timezone-aware, as ``until``.
        """
        if self.cron is None:
            yield from self._stretch(after, until)
            return
        for tick in ticks(self.cron, self.timezone, after + _INSTANT, until + _INSTANT):
            yield tick, scheduled_partitions(tick, self.freshness, self.formatters, self.timezone)

    def _stretch(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, PartitionSet]]:
        """The partitions that have rows of a stretch of time, without one that is not over then, unless there is no other.

        Each is over at the earliest moment at which a clock on the wall shows its end.
        """
        zone = ZoneInfo(self.timezone)
        first, last = (on_the_wall(time.astimezone(zone)) for time in (after, until))
        # Where autumn sets the clock back in between, the clock shows earlier and later times than at both ends.
        first = min(first, last - (until - after))
        if until.astimezone(zone).fold:
            last += _REPEATED
        within = list(partitions_within(first, last, self.formatters))
        over = [partition for partition in within if partition.end <= last] or within
        for number, partition in enumerate(over, 1):
            ends = min(partition.end.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
            yield until if number == len(over) else min(max(ends, after), until), PartitionSet.of([partition.spec])

    def oldest(self, partitions: Iterable[Mapping[str, str | None]]) -> datetime | None:
        """The time with which the oldest of some partitions begins; ``None`` when none of them is a time."""
        starts: list[datetime] = []
        for spec in partitions:
            with suppress(ValueError):  # null, or a spelling of an earlier definition
                starts.append(start_of(spec, self.formatters))
        return min(starts).replace(tzinfo=ZoneInfo(self.timezone)) if starts else None

    def batch(self, after: datetime, until: datetime, most: int) -> tuple[datetime, PartitionSet]:
        """The partitions of the first ticks after a time, and the last of these ticks: all up to ``until``, or about ``most``."""
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
    """The partitions of the ticks of a table after one time up to another that no refresh has made, or the first of them.

    :param fresh: the end of its unbroken ticks.
    """
    missing = NO_PARTITIONS
    for tick, planned in times.steps(fresh, until):
        missing = missing.union(lacking(normalised(planned, columns), tick, made))
        if len(missing) >= MOST_PARTITIONS:
            break
    return missing


def earlier_holes(workspace: Workspace, registered: RegisteredTable, times: TimeTable, fresh: datetime) -> PartitionSet:
    """The partitions that a table lacks although an earlier release called it fresh, or the first of them.

    They are those of the ticks since its oldest partition that no refresh has made in time. Where no refresh of a partition is
    remembered, the partitions that the table has tell.

    :param fresh: up to when that release called it fresh.
    :raises DynamicTableError: when the catalog does not list the partitions.
    """
    identifier = registered.identifier
    specs = workspace.catalog(identifier.catalog).list_partitions(identifier.path)
    present = [{key: spec.get(key) for key in times.formatters} for spec in specs]
    oldest = times.oldest(present)
    if oldest is None:
        return NO_PARTITIONS
    current = registered.current()
    there = {frozenset(spec.items()) for spec in present}
    made = made_by(times_made(history(workspace, identifier, current.number if current is not None else None, _ALL)))
    holes: list[Mapping[str, str | None]] = []
    for tick, planned in times.steps(oldest, fresh):
        late = lacking(normalised(planned, registered.columns), tick, made)
        holes += (spec for spec in late if _last_made(spec, made) is not None or frozenset(spec.items()) not in there)
        if len(holes) >= MOST_PARTITIONS:
            break
    return PartitionSet.of(holes)


def times_made(refreshes: Iterable[Refresh]) -> Iterator[tuple[datetime, PartitionSet]]:
    """The last tick for which each refresh counts, and its partitions."""
    return ((refresh.made_for, refresh.partitions) for refresh in refreshes)


def made_by(refreshes: Iterable[tuple[datetime, PartitionSet]]) -> Made:
    """The partitions that refreshes made, each of them by the last tick that it counts for and by its partitions."""
    made: dict[frozenset[tuple[str, str | None]], datetime] = {}
    for time, partitions in refreshes:
        for spec in partitions:
            key = frozenset(spec.items())
            made[key] = max(time, made.get(key, time))
    return made


def lacking(planned: PartitionSet, tick: datetime, made: Made) -> PartitionSet:
    """The partitions of a tick that no refresh has made. One before the tick has not: their time was not over."""
    return PartitionSet.of(spec for spec in planned if (last := _last_made(spec, made)) is None or last < tick)


def _last_made(spec: Mapping[str, str | None], made: Made) -> datetime | None:
    """The last tick for which a partition was made, alone or with others by a spec that leaves out keys."""
    covering = chain.from_iterable(combinations(spec.items(), size) for size in range(len(spec) + 1))
    return max((made[key] for key in map(frozenset, covering) if key in made), default=None)


def history(workspace: Workspace, identifier: TableIdentifier, current: int | None, most: int = _LATEST) -> list[Refresh]:
    """The refreshes whose partitions the table has, newest version first: those since it was rolled back, or undone.

    :param current: the number of its current version.
    """
    return standing(workspace.ledger.list_refreshes(identifier, most), current)


def made_before(workspace: Workspace, identifier: TableIdentifier, current: int | None) -> Made:
    """As :func:`history`, for :func:`lacking`."""
    return made_by(times_made(history(workspace, identifier, current)))


def standing(refreshes: Iterable[Refresh], current: int | None) -> list[Refresh]:
    """Those of some refreshes whose rows their table may have, newest version first: up to a rollback, or an undone version.

    An undone version does not end the list when it is later than the current one, or when its number came again: then it was
    taken back, or it is of a table that was dropped, or of the time before a dump was restored.

    :param current: the number of the current version of the table.
    """
    made = [one for one in refreshes if one.version and one.state is not RefreshState.SKIPPED]
    again = {one.version for one in made if one.state is not RefreshState.UNDONE}

    def is_of_the_table(one: Refresh) -> bool:
        is_gone = one.version in again or (one.version or 0) > (current or 0)
        return one.state is not RefreshState.UNDONE or not is_gone

    newest_first = sorted(filter(is_of_the_table, made), key=lambda one: one.version or 0, reverse=True)
    return list(takewhile(lambda one: one.is_made_of_sources, newest_first))
