"""What of sources with a watermark a refresh reads, and which partitions of its table that makes complete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.wall_clock import on_the_wall
from airflow_dynamic_tables.core.streaming.batches import Batch, SeenPartition
from airflow_dynamic_tables.core.streaming.publishing import is_closed, read_after, to_publish
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.exceptions import UpstreamError
from airflow_dynamic_tables.services.watermarks.places import partition_names

_NAMED = 3
"""Partitions that a sentence names; of more it tells how many."""


@dataclass(frozen=True, slots=True)
class SourceGrowth:
    """One source: ``binding`` has all its files, ``batch`` says which of them are read now, ``read`` what was read before, and
    ``reached`` is its watermark until now.
    """

    source: Source
    binding: SourceBinding
    batch: Batch
    read: Mapping[str, str]
    reached: datetime | None


@dataclass(frozen=True, slots=True)
class Growth:
    """All sources of a table that have a watermark, by their full names.

    ``formatters`` are those of the table; ``base`` is the token of the version of it that all this builds on.
    """

    sources: Mapping[str, SourceGrowth]
    formatters: Mapping[str, str]
    base: str | None

    @property
    def watermark(self) -> datetime | None:
        """Up to when all of them are read once this batch is; naive, ``None`` when one has no whole partition yet."""
        return _earliest(one.batch.watermark for one in self.sources.values())

    def reached_at(self, timezone: str) -> datetime | None:
        """The watermark where the wall clock of the sources shows the time of a zone."""
        return self.watermark.replace(tzinfo=ZoneInfo(timezone)) if self.watermark is not None else None

    def complete_until(self, at: datetime, timezone: str) -> datetime | None:
        """Up to when all partitions are there, at most a time: the watermark, unless the next partition is not over by then.

        :param at: timezone-aware.
        :param timezone: what the wall clock of the sources shows the time of.
        :return: ``None`` when a source has no whole partition yet.
        """
        zone = ZoneInfo(timezone)
        wall = on_the_wall(at.astimezone(zone))
        reached = [at]
        for one in self.sources.values():
            watermark, own = one.batch.watermark, one.source.watermark
            if watermark is None or own is None:
                return None
            if own.end_of(watermark) <= wall:
                reached.append(watermark.replace(tzinfo=zone))
        return min(reached)

    @property
    def published(self) -> PartitionSet:
        """The partitions of the table that are complete now and have to be made, or made anew; of one without time partitions
        all of it, when something is new.
        """
        reached = _earliest(one.reached for one in self.sources.values())
        published = NO_PARTITIONS
        for one in self.sources.values():
            published = published.union(to_publish(one.batch.taken, reached, self.watermark, self.formatters))
        return published

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be read at all now, without a full stop; ``None`` when something can."""
        for name, one in self.sources.items():
            if one.batch.rewritten is not None:
                rewritten = one.batch.rewritten
                why = rewritten.obstacle
                return f"partition {rewritten.name} of {name} was read before and is being written anew: {why}"
        return None

    @property
    def late(self) -> tuple[str, ...]:
        """Partitions of the sources that came, or changed, after their time was over for the table."""
        return tuple(f"{one.name} of {name}" for name, growth in self.sources.items() for one in growth.batch.late)

    def read_now(self, name: str) -> tuple[SeenPartition, ...]:
        """The partitions of a source that are read: the whole ones all of whose rows are of complete partitions of the table."""
        watermark = self.watermark
        readable = self.sources[name].batch.readable
        return () if watermark is None else tuple(one for one in readable if is_closed(one, watermark, self.formatters))

    def binding(self, name: str, view: str, published: PartitionSet) -> SourceBinding:
        """A source as a refresh of these partitions reads it.

        :raises UpstreamError: when nothing of it can be read yet.
        """
        growth = self.sources[name]
        if self.obstacle is not None:
            raise UpstreamError(f"{self.obstacle}; it is read when that is over.")
        partitions = self.read_now(name)
        if not partitions and growth.read:
            raise UpstreamError(f"Every partition of {name} that was read is gone; look whether its files are in reach.")
        if not partitions and growth.binding.schema is None:
            raise UpstreamError(f"{name} has no partition yet that is whole: {self.why_waiting or 'nothing is there'}.")
        whole = replace(growth.batch, readable=partitions)
        after = read_after(whole, growth.read, published, self.formatters)
        return restricted(growth.binding, view, {one.name for one in partitions}, after)

    @property
    def why_waiting(self) -> str:
        """Which partitions are there and not read yet, and why, without a full stop; empty when there are none."""
        waiting = [(name, one) for name, growth in self.sources.items() for one in growth.batch.waiting]
        told = [f"{one.name} of {name}: {_why(one)}" for name, one in waiting[:_NAMED]]
        more = [f"and {len(waiting) - _NAMED} more"] if len(waiting) > _NAMED else []
        return "; ".join([*told, *more])

    def __str__(self) -> str:
        """Where the sources stand."""
        watermark = self.watermark
        text = f"watermark {watermark.isoformat()}" if watermark is not None else "no watermark yet"
        if self.late:
            text += f", {len(self.late)} late: {', '.join(self.late[:_NAMED])}" + (", …" if len(self.late) > _NAMED else "")
        return f"{text}, waiting for {self.why_waiting}" if self.why_waiting else text


def _why(one: SeenPartition) -> str:
    if one.obstacle is not None:
        return one.obstacle
    return "its time has not come yet; is it mistyped?" if one.is_ahead else "one before it is not whole"


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    known = list(times)
    return min((time for time in known if time is not None), default=None) if None not in known else None


def restricted(binding: SourceBinding, view: str, names: set[str], after: Mapping[str, str]) -> SourceBinding:
    """The same with the files of these partitions only."""
    partition = partition_names(binding)
    parts = (replace(part, files=tuple(file for file in part.files if partition[file] in names)) for part in binding.parts)
    version = f"partitions:{hashlib.sha256(repr(sorted(after.items())).encode()).hexdigest()[:16]}"
    state = binding.state
    if state is not None:
        unsettled = tuple(name for name in state.unsettled if name in names)
        state = replace(state, version=version, partitions=dict(after), unsettled=unsettled)
    return replace(
        binding,
        view=view,
        version=version,
        files=tuple(file for file in binding.files if partition[file] in names),
        parts=tuple(part for part in parts if part.files),
        state=state,
    )
