"""Which time partitions of a table are published, and what of a source is read with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice

from airflow_dynamic_tables.core.streaming.batches import EMPTY, Batch, SeenPartition
from airflow_dynamic_tables.core.tables.dates import partitions_within
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet

MOST_SKIPPED = 10_000
"""Partitions without rows that a watermark may close at once: more than a year of hours is a mistyped date."""


def partitions_of(one: SeenPartition, formatters: Mapping[str, str]) -> PartitionSet:
    """The partitions of a table that have the rows of a partition of its source: the whole table when no time names them."""
    if not formatters:
        return WHOLE_TABLE
    return PartitionSet.of(partition.spec for partition in partitions_within(one.start, one.end, formatters))


def to_publish(
    taken: Iterable[SeenPartition], reached: datetime | None, watermark: datetime | None, formatters: Mapping[str, str]
) -> PartitionSet:
    """The partitions of a table that a batch publishes, oldest first: those of the partitions that were taken, as far as they
    end before the watermark or at it, and those that it passes for the first time, of which nothing came: they are empty.

    :param reached: the watermark before this batch; all times are naive, by the clock on the wall.
    :return: the whole table when no time names its partitions; nothing when all of them have to wait.
    """
    partitions = list(taken)
    if watermark is None or (not partitions and (reached is None or reached >= watermark)):
        return NO_PARTITIONS
    if not formatters:
        return WHOLE_TABLE if partitions else NO_PARTITIONS
    stretches = [(one.start, one.end) for one in partitions]
    if reached is not None and reached < watermark:
        stretches.append((reached, watermark))
    closed = {
        partition.start: partition.spec
        for first, end in stretches
        for partition in islice(partitions_within(first, end, formatters), MOST_SKIPPED)
        if partition.end <= watermark
    }
    return PartitionSet.of(closed[start] for start in sorted(closed))


def is_closed(one: SeenPartition, watermark: datetime, formatters: Mapping[str, str]) -> bool:
    """Whether all partitions of a table that have rows of a partition of its source end before the watermark or at it."""
    return not formatters or all(own.end <= watermark for own in partitions_within(one.start, one.end, formatters))


def read_after(batch: Batch, read: Mapping[str, str], published: PartitionSet, formatters: Mapping[str, str]) -> dict[str, str]:
    """Fingerprints of the partitions that the table has the rows of, once these partitions of it are published.

    A partition of the source that has rows in others, too, stays as it was read before, or not read at all: so a later batch
    finds it. What is gone stays, unless the whole table is made anew without it.

    :param read: the fingerprints before.
    """
    after = {} if published.is_whole else dict(read)
    known = PartitionSet.of(map(_plain, published))
    for one in batch.readable:
        if published.is_whole or all(known.covers(_plain(spec)) for spec in partitions_of(one, formatters)):
            after[one.name] = one.fingerprint or EMPTY
    return after


def _plain(spec: Mapping[str, str | None]) -> dict[str, str | None]:
    """The same without leading zeros: a key that is a number has none, whatever the formatter writes."""
    return {key: str(int(value)) if value is not None and value.isdecimal() else value for key, value in spec.items()}
