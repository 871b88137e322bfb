"""The ticks of a table with time partitions: which partitions they make, and which of these are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.catalog.values import AnyTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.cron import ticks
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.wall_clock import on_the_wall
from airflow_dynamic_tables.core.tables.dates import partitions_within, scheduled_partitions
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.workspace import Workspace

MOST_PARTITIONS = 1_000
"""Partitions that one commit of a catch-up replaces, unless a single tick has more. The next commit goes on from there."""

_LATEST = 50
"""Refreshes of the history that are looked at for partitions that were made out of turn."""

_INSTANT = timedelta(microseconds=1)

_REPEATED = timedelta(hours=1)
"""How far autumn sets the clock back, at most."""


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


def missing_partitions(
    workspace: Workspace, table: AnyTable, identifier: TableIdentifier, times: TimeTable, fresh: datetime, until: datetime
) -> PartitionSet:
    """The partitions of the ticks of a table after one time up to another that no refresh has made, or the first of them.

    :param fresh: the end of its unbroken ticks.
    """
    made = [(refresh.schedule_time, refresh.partitions) for refresh in history(workspace, identifier)]
    missing = NO_PARTITIONS
    for tick, planned in times.steps(fresh, until):
        missing = missing.union(lacking(normalised(planned, table.columns), tick, made))
        if len(missing) >= MOST_PARTITIONS:
            break
    return missing


def lacking(planned: PartitionSet, tick: datetime, made: list[tuple[datetime, PartitionSet]]) -> PartitionSet:
    """The partitions of a tick that no refresh has made. One before the tick has not: their time was not over.

    :param made: schedule times and partitions of refreshes.
    """
    return PartitionSet.of(spec for spec in planned if not any(time >= tick and then.covers(spec) for time, then in made))


def history(workspace: Workspace, identifier: TableIdentifier) -> list[Refresh]:
    """The refreshes whose partitions the table has, newest version first: those since it was rolled back, or undone."""
    refreshes = workspace.ledger.list_refreshes(identifier, _LATEST)
    versions = (one for one in refreshes if one.version and one.state is not RefreshState.SKIPPED)
    newest_first = sorted(versions, key=lambda one: one.version or 0, reverse=True)
    return list(takewhile(lambda one: one.is_made_of_sources, newest_first))
