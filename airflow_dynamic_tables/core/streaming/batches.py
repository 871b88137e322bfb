"""Which partitions of a source are read next: whole ones, in order, and what of them is late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_dynamic_tables.core.streaming.partition_time import TimeExtractor
from airflow_dynamic_tables.core.streaming.watermarks import PartitionOrder, PartitionWatermark
from airflow_dynamic_tables.core.tables.partitions import parse_spec

EMPTY = "empty"
"""Fingerprint of a partition that is whole and has no file."""

TimeOf = Callable[[Mapping[str, str]], datetime]
"""The time of a partition, naive, by its values."""

_ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """A partition of a source as somebody found it.

    ``name`` is its text (``ds=2024-01-01/hh=03``), ``start`` and ``end`` the time of its rows on the wall. ``obstacle`` says why
    it is not whole; ``None``: it is. ``is_ahead``: its time has not come yet, which no clock explains.
    """

    name: str
    start: datetime
    end: datetime
    fingerprint: str = EMPTY
    created_at: datetime | None = None
    obstacle: str | None = None
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What of a source is read now.

    ``taken`` are the partitions that were not read before, or not as they are now, in order; ``late`` those of them whose time
    was over for the table already; ``waiting`` those that are not read yet; ``gone`` names that were read once and are there no
    more. ``rewritten`` is a partition that was read and is being written anew: until it is whole, nothing can be read without
    half of it. ``watermark`` is where the source stands after this batch, ``None`` before the first partition.
    """

    readable: tuple[SeenPartition, ...] = ()
    taken: tuple[SeenPartition, ...] = ()
    late: tuple[SeenPartition, ...] = ()
    waiting: tuple[SeenPartition, ...] = ()
    gone: tuple[str, ...] = ()
    rewritten: SeenPartition | None = None
    watermark: datetime | None = None


def choose(
    seen: Iterable[SeenPartition], read: Mapping[str, str], watermark: PartitionWatermark, reached: datetime | None
) -> Batch:
    """The next batch of a source.

    New partitions come in their order up to the first one that is not whole, which holds back those behind it: a watermark past
    it would close its window without it. One whose time is over already holds nothing back, and is late once it is whole. So is
    a partition that changed after it was read. What is there no more stays as it was read: absence proves nothing.

    :param read: fingerprints of the partitions that the table has the rows of, by name.
    :param reached: the watermark so far, naive; ``None`` before the first partition.
    """
    partitions = in_order(seen, watermark.order)
    changed = [one for one in partitions if one.name in read and one.fingerprint != read[one.name]]
    taken: list[SeenPartition] = []
    waiting: list[SeenPartition] = []
    is_held = False
    for one in partitions:
        if one.name in read or not is_from(one, watermark):
            continue
        is_over = reached is not None and one.end <= reached
        if one.obstacle is None and not one.is_ahead and (is_over or not is_held):
            taken.append(one)
        else:
            waiting.append(one)
            is_held = is_held or not (is_over or one.is_ahead)

    new = {one.name for one in taken}
    moved = new | {one.name for one in changed}
    ends = [one.end for one in taken] + ([reached] if reached is not None else [])
    return Batch(
        readable=tuple(one for one in partitions if one.name in read or one.name in new),
        taken=tuple(one for one in partitions if one.name in moved),
        late=(*changed, *(one for one in taken if reached is not None and one.end <= reached)),
        waiting=tuple(waiting),
        gone=tuple(sorted(set(read) - {one.name for one in partitions})),
        rewritten=next((one for one in changed if one.obstacle is not None), None),
        watermark=max(ends, default=None),
    )


def in_order(seen: Iterable[SeenPartition], order: PartitionOrder) -> list[SeenPartition]:
    """Partitions one after the other: by name, by their time, or by when they were made; what is equal goes by name."""
    if order is PartitionOrder.TIME:
        return sorted(seen, key=lambda one: (one.start, one.name))
    if order is PartitionOrder.CREATED:
        return sorted(seen, key=lambda one: (one.created_at or _ALWAYS, one.name))
    return sorted(seen, key=lambda one: one.name)


def is_from(one: SeenPartition, watermark: PartitionWatermark) -> bool:
    """Whether a partition is not before the first one that a source wants to be read; that one is."""
    if watermark.start is None:
        return True
    if watermark.order is PartitionOrder.NAME:
        return one.name >= watermark.start
    start = start_time(watermark.start)
    if watermark.order is PartitionOrder.TIME:
        return one.start >= start
    return one.created_at is not None and one.created_at >= start.replace(tzinfo=UTC)


def start_time(text: str) -> datetime:
    """The time from which on partitions are read, naive: ``2021-03-19`` or ``2021-03-19 10:00:00``.

    :raises ValueError: when it is none.
    """
    return TimeExtractor().time_of({"": text}, ("",))


def reached_by(
    read: Iterable[str], time_of: Callable[[Mapping[str, str]], datetime], watermark: PartitionWatermark
) -> datetime | None:
    """The watermark after the partitions of these names were read; ``None`` for none.

    :raises PartitionTimeError: when one is no time.
    """
    return max((watermark.end_of(time_of(parse_spec(name))) for name in read if name), default=None)
