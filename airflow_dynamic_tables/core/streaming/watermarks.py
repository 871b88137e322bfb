"""Partition watermark: once a partition is read whole, nothing from before its end is to come."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, field
from datetime import MAXYEAR, datetime, timedelta
from enum import StrEnum

from airflow_dynamic_tables.core.streaming.partition_time import TimeExtractor

SUCCESS_FILE = "_SUCCESS"
"""The marker that Hadoop, Spark and Flink leave when all files of a folder are there."""


class PartitionOrder(StrEnum):
    """By what new partitions come one after the other."""

    NAME = "partition-name"
    TIME = "partition-time"
    CREATED = "create-time"


class WholeBy(StrEnum):
    """What says that all files of a partition are there."""

    FILE = "file"
    METASTORE = "metastore"
    QUIET = "quiet"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class CompleteWhen:
    """What says that a partition is whole: a marker in its folder (its name is ``told_by``), that the metastore knows it, that
    nothing in it has changed for so long (``quiet``), or a class (``told_by``, as ``module:Class``) with ``is_complete``.
    """

    by: WholeBy = WholeBy.FILE
    told_by: str = SUCCESS_FILE
    quiet: timedelta = timedelta()

    def __str__(self) -> str:
        """As it is shown."""
        return {
            WholeBy.FILE: f"file {self.told_by}",
            WholeBy.METASTORE: "the metastore",
            WholeBy.QUIET: f"no change for {self.quiet}",
            WholeBy.CLASS: f"class {self.told_by}",
        }[self.by]


@dataclass(frozen=True, slots=True)
class PartitionWatermark:
    """What a source with ``watermark: source`` says of its partitions.

    Rows of a partition are of its time: from the partition time on, ``interval`` long, or that many ``months``. ``start`` is the
    first partition that is read, a name or a time by ``order``. ``monitor_interval`` is how long nobody looks for new ones;
    ``None``: the freshness of the table.
    """

    interval: timedelta
    extractor: TimeExtractor = field(default_factory=TimeExtractor)
    complete: CompleteWhen = field(default_factory=CompleteWhen)
    order: PartitionOrder = PartitionOrder.NAME
    start: str | None = None
    monitor_interval: timedelta | None = None
    months: int = 0

    def end_of(self, time: datetime) -> datetime:
        """Up to when rows of a partition are: the watermark once it is read.

        On the wall, as the partition time is. So the hour that autumn repeats is one partition with one end, and the one that
        spring skips has none: the next one closes it, empty.

        :raises OverflowError: when it is beyond the calendar.
        """
        return months_after(time, self.months) + self.interval


def months_after(time: datetime, months: int) -> datetime:
    """The same day and time some months later; the last day of a month that is too short for it.

    :raises OverflowError: when it is beyond the calendar.
    """
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    if year > MAXYEAR:
        raise OverflowError("date value out of range")
    return time.replace(year=year, month=month + 1, day=min(time.day, monthrange(year, month + 1)[1]))
