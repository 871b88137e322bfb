"""Growth of watermark sources: the partitions to read, and the table partitions that they complete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.clients.files import plain_path
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import on_the_wall
from airflow_dynamic_tables.core.schema import partition_of
from airflow_dynamic_tables.core.streaming.partition_commits import is_closed, read_after, to_publish
from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionBatch, SeenPartition
from airflow_dynamic_tables.exceptions import UpstreamError

_NAMED = 3
"""Limit of partitions named in a message."""


@dataclass(frozen=True, slots=True)
class SourceGrowth:
    """The growth of one source.

    ``binding`` has all its files, ``batch`` the partitions to read now, ``read`` those read before, and ``reached`` its watermark
    so far.
    """

    source: Source
    binding: SourceBinding
    batch: PartitionBatch
    read: Mapping[str, str]
    reached: datetime | None


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of all watermark sources of a table, by full name.

    ``formatters`` are those of the table; ``base`` is the token of the table version that this is relative to.
    """

    sources: Mapping[str, SourceGrowth]
    formatters: Mapping[str, str]
    base: str | None

    @property
    def watermark(self) -> datetime | None:
        """The watermark of all sources after this batch is read; naive; ``None`` if a source has no complete partition yet."""
        return _earliest(one.batch.watermark for one in self.sources.values())

    def reached_at(self, timezone: str) -> datetime | None:
        """Return the watermark as wall-clock time in a time zone."""
        return self.watermark.replace(tzinfo=ZoneInfo(timezone)) if self.watermark is not None else None

    def complete_until(self, at: datetime, timezone: str) -> datetime | None:
        """Return the time up to which all partitions exist, at most ``at``: the watermark, unless the next partition is open.

        :param at: timezone-aware.
        :param timezone: the time zone of partition times.
        :return: ``None`` if a source has no complete partition yet.
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
        """The complete partitions of the table to make or replace; without time partitions, all of it if anything is new."""
        reached = _earliest(one.reached for one in self.sources.values())
        published = NO_PARTITIONS
        for one in self.sources.values():
            published = published.union(to_publish(one.batch.taken, reached, self.watermark, self.formatters))
        return published

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be read now, without a full stop; ``None`` if something can."""
        for name, one in self.sources.items():
            if one.batch.rewritten is not None:
                rewritten = one.batch.rewritten
                why = rewritten.obstacle
                return f"partition {rewritten.name} of {name} was read before and is being written anew: {why}"
        return None

    @property
    def late(self) -> tuple[str, ...]:
        """Partitions of the sources that arrived or changed after their time was over for the table."""
        return tuple(f"{one.name} of {name}" for name, growth in self.sources.items() for one in growth.batch.late)

    def read_now(self, name: str) -> tuple[SeenPartition, ...]:
        """Return the source partitions to read: the complete ones whose rows all belong to complete table partitions."""
        watermark = self.watermark
        readable = self.sources[name].batch.readable
        return () if watermark is None else tuple(one for one in readable if is_closed(one, watermark, self.formatters))

    def binding(self, name: str, view: str, published: PartitionSet) -> SourceBinding:
        """Return the binding of a source for a refresh of these partitions.

        :raises UpstreamError: if nothing of it can be read yet.
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
        """Why existing partitions are not read yet, without a full stop; empty if there are none."""
        waiting = [(name, one) for name, growth in self.sources.items() for one in growth.batch.waiting]
        told = [f"{one.name} of {name}: {_why(one)}" for name, one in waiting[:_NAMED]]
        more = [f"and {len(waiting) - _NAMED} more"] if len(waiting) > _NAMED else []
        return "; ".join([*told, *more])

    def __str__(self) -> str:
        """Describe the state of the sources."""
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
    """Return the binding restricted to the files of these partitions."""
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


def partition_names(binding: SourceBinding) -> dict[str, str]:
    """Return the partition text of each file of a source."""
    names: dict[str, str] = {}
    for part in binding.parts:
        for file in part.files:
            names[file] = _name_of(file, part.base_path, binding.partition_keys, part.values)
    for file in binding.files:
        names[file] = _name_of(file, binding.base_path, binding.partition_keys, {})
    return names


def _name_of(file: str, base: str | None, keys: Sequence[str], values: Mapping[str, str]) -> str:
    told = dict(values)
    if base is not None:
        folder = plain_path(file)[len(plain_path(base)) + 1 :].rpartition("/")[0]
        told |= {key.lower(): value for key, value in partition_of(folder).items()}
    by_lower = {key.lower(): value for key, value in told.items()}
    return describe({key: by_lower[key.lower()] for key in keys if key.lower() in by_lower})
