"""Ticks of a table with time partitions: their partitions, and which of these are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, takewhile
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import ticks
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import normalised, partitions_within, scheduled_partitions, start_of
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.schedule import Freshness, on_the_wall
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

MOST_PARTITIONS = 1_000
"""Limit of partitions of one commit of a catch-up, unless a single tick has more. The next commit continues from there."""

_LATEST = 50
"""Limit of refreshes read from the history for partitions refreshed out of order."""

_ALL = 100_000
"""Limit of refreshes read once for partitions left out by earlier releases."""

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
    made = made_by(times_made(history(workspace, identifier, current.number if current is not None else None, _ALL)))
    holes: list[Mapping[str, str | None]] = []
    for tick, planned in times.steps(oldest, fresh):
        late = lacking(normalised(planned, registered.columns), tick, made)
        holes += (spec for spec in late if _last_made(spec, made) is not None or frozenset(spec.items()) not in there)
        if len(holes) >= MOST_PARTITIONS:
            break
    return PartitionSet.of(holes)


def times_made(refreshes: Iterable[Refresh]) -> Iterator[tuple[datetime, PartitionSet]]:
    """Return the last tick for which each refresh counts, and its partitions."""
    return ((refresh.made_for, refresh.partitions) for refresh in refreshes)


def made_by(refreshes: Iterable[tuple[datetime, PartitionSet]]) -> Made:
    """Return the partitions that refreshes have made, with the last tick that each counts for."""
    made: dict[frozenset[tuple[str, str | None]], datetime] = {}
    for time, partitions in refreshes:
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
    """Return the refreshes whose partitions the table has, newest version first: those since a rollback or an undone version.

    :param current: the number of the current version.
    """
    return standing(workspace.ledger.list_refreshes(identifier, most), current)


def made_before(workspace: Workspace, identifier: TableIdentifier, current: int | None) -> Made:
    """Return the partitions made by :func:`history`, for :func:`lacking`."""
    return made_by(times_made(history(workspace, identifier, current)))


def standing(refreshes: Iterable[Refresh], current: int | None) -> list[Refresh]:
    """Return the refreshes whose rows the table may have, newest version first, up to a rollback or an undone version.

    An undone version does not end the list if its number is greater than the current one or was reused. Then another engine has
    removed it from the table, or it belongs to a dropped table, or it precedes a restored dump.

    :param current: the number of the current version of the table.
    """
    made = [one for one in refreshes if one.version and one.state is not RefreshState.SKIPPED]
    again = {one.version for one in made if one.state is not RefreshState.UNDONE}

    def is_of_the_table(one: Refresh) -> bool:
        is_gone = one.version in again or (one.version or 0) > (current or 0)
        return one.state is not RefreshState.UNDONE or not is_gone

    newest_first = sorted(filter(is_of_the_table, made), key=lambda one: one.version or 0, reverse=True)
    return list(takewhile(lambda one: one.is_made_of_sources, newest_first))
