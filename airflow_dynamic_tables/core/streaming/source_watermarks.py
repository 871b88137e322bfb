"""Partition times and watermarks of sources, and their options. Times are wall-clock times without a time zone."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, date, datetime, time, timedelta
from enum import StrEnum

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.partition_dates import check_formatters, formatted, parsed
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, describe, parse_spec
from airflow_dynamic_tables.core.schedule import Freshness

_LENIENT = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)
_MICROSECOND_DIGITS = 6
_NAME = re.compile(r"\$(\w+)")


class PartitionTimeError(ValueError):
    """The values of a partition do not form a time."""


@dataclass(frozen=True, slots=True)
class TimeExtractor:
    """Conversion of partition values to a time, with the semantics of Flink's extractor options.

    ``pattern`` is a text in which ``$key`` is replaced by values; without it the value of the first key is the time.
    ``formatter`` is the Java date pattern of the result; without it the format is ``y-M-d`` or ``y-M-d H:m:s[.n]``, with optional
    leading zeros. ``class_path`` (``module:Class``) replaces both.
    """

    pattern: str | None = None
    formatter: str | None = None
    class_path: str | None = None

    def check(self, keys: Sequence[str]) -> None:
        """Check that the extractor fits these partition keys.

        :raises ValueError: with the mistake and the correction.
        """
        if self.pattern is not None:
            names = _NAME.findall(self.pattern)
            if not names:
                raise ValueError(f"{self.pattern!r} names no partition key; write for example ${keys[0]}")
            for name in names:
                if not any(name.startswith(key) for key in keys):
                    raise ValueError(f"${name} is no partition key of this source{did_you_mean(name, keys)}")
        if self.formatter is not None:
            check_formatters({"": self.formatter})

    def time_of(self, spec: Mapping[str, str], keys: Sequence[str]) -> datetime:
        """The time of a partition, naive.

        :raises PartitionTimeError: names the values that do not form a time.
        """
        missing = [key for key in keys if spec.get(key, NULL_PARTITION) == NULL_PARTITION]
        if missing:
            raise PartitionTimeError(f"partition {describe(spec)!r} has no value of {missing[0]}, so it has no time")
        text = self._text(spec, keys)
        found = _lenient(text) if self.formatter is None else _strict(text, self.formatter)
        if found is None:
            meant = "2021-03-19 or 2021-03-19 10:00:00"
            if self.formatter is not None:
                meant = formatted(datetime(2021, 3, 19, 10), self.formatter)  # noqa: DTZ001 - wall clock
            raise PartitionTimeError(f"partition {describe(spec)!r} gives {text!r}, which is no time such as {meant}")
        return found

    def _text(self, spec: Mapping[str, str], keys: Sequence[str]) -> str:
        if self.pattern is None:
            return spec[keys[0]]
        # In one pass, so that no value is taken for a key; the longest key first, because $dt is a prefix of $dt1.
        longest_first = sorted(keys, key=len, reverse=True)
        names = re.compile(r"\$(" + "|".join(map(re.escape, longest_first)) + ")")
        return names.sub(lambda match: spec[match[1]], self.pattern)


def _lenient(text: str) -> datetime | None:
    match = _LENIENT.fullmatch(text)
    if match is None:
        return None
    *fields, fraction = (group or "0" for group in match.groups())
    year, month, day, hour, minute, second = map(int, fields)
    microseconds = int(fraction.ljust(_MICROSECOND_DIGITS, "0")[:_MICROSECOND_DIGITS])
    try:
        return datetime.combine(date(year, month, day), time(hour, minute, second, microseconds))
    except ValueError:
        return None


def _strict(text: str, formatter: str) -> datetime | None:
    try:
        return parsed(text, formatter)
    except ValueError:
        return None


SUCCESS_FILE = "_SUCCESS"
"""The marker file that Hadoop, Spark and Flink write when a folder is complete."""


class PartitionOrder(StrEnum):
    """The order in which new partitions are read."""

    NAME = "partition-name"
    TIME = "partition-time"
    CREATED = "create-time"


class WholeBy(StrEnum):
    """The criterion of a complete partition."""

    FILE = "file"
    METASTORE = "metastore"
    QUIET = "quiet"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class CompleteWhen:
    """The criterion of a complete partition.

    It is a marker file of name ``told_by``, the partition's presence in the metastore, no change during ``quiet``, or a class
    (``told_by``, as ``module:Class``) with ``is_complete``.
    """

    by: WholeBy = WholeBy.FILE
    told_by: str = SUCCESS_FILE
    quiet: timedelta = timedelta()

    def __str__(self) -> str:
        """The criterion as text."""
        return {
            WholeBy.FILE: f"file {self.told_by}",
            WholeBy.METASTORE: "the metastore",
            WholeBy.QUIET: f"no change for {self.quiet}",
            WholeBy.CLASS: f"class {self.told_by}",
        }[self.by]


@dataclass(frozen=True, slots=True)
class PartitionWatermark:
    """The partition watermark of a source with ``watermark: source``.

    Rows of a partition have times from the partition time on, for ``interval`` or that many ``months``. ``start`` is the first
    partition that is read, a name or a time depending on ``order``. ``monitor_interval`` is the time between checks for new
    partitions; ``None``: the freshness of the table.
    """

    interval: timedelta
    extractor: TimeExtractor = field(default_factory=TimeExtractor)
    complete: CompleteWhen = field(default_factory=CompleteWhen)
    order: PartitionOrder = PartitionOrder.NAME
    start: str | None = None
    monitor_interval: timedelta | None = None
    months: int = 0

    def end_of(self, time: datetime) -> datetime:
        """The end of a partition's time, which is the watermark after it is read.

        Wall-clock arithmetic, as for the partition time. So the hour that is repeated in autumn is one partition with one end,
        and the hour that is skipped in spring has none: the next one closes it, empty.

        :raises OverflowError: when it is beyond the calendar.
        """
        return months_after(time, self.months) + self.interval


def months_after(time: datetime, months: int) -> datetime:
    """The same day and time a number of months later; clamped to the last day of a shorter month.

    :raises OverflowError: when it is beyond the calendar.
    """
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    if year > MAXYEAR:
        raise OverflowError("date value out of range")
    return time.replace(year=year, month=month + 1, day=min(time.day, monthrange(year, month + 1)[1]))


EMPTY = "empty"
"""Fingerprint of a complete partition without files."""

TimeOf = Callable[[Mapping[str, str]], datetime]
"""Function from the values of a partition to its naive time."""

_ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """A partition of a source as found.

    ``name`` is its text (``ds=2024-01-01/hh=03``), ``start`` and ``end`` are the wall-clock time range of its rows. ``obstacle``
    is the reason why it is incomplete; ``None``: it is complete. ``is_ahead``: its time is in the future beyond any clock skew.
    """

    name: str
    start: datetime
    end: datetime
    fingerprint: str = EMPTY
    created_at: datetime | None = None
    obstacle: str | None = None
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """The partitions of a source that are read next.

    ``taken`` are the partitions that are new or changed since they were read, in order; ``late`` those of them that the watermark
    had already passed; ``waiting`` those that are not read yet; ``gone`` names that were read and do not exist any more.
    ``rewritten`` is a partition that was read and is being rewritten: until it is complete, the source cannot be read
    consistently. ``watermark`` is the source's watermark after this batch, ``None`` before the first partition.
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
) -> PartitionBatch:
    """Choose the next batch of a source.

    New partitions are taken in order up to the first incomplete one, which blocks later ones, because a watermark past it would
    close its window without it. A partition that the watermark has already passed blocks nothing, and is late once it is
    complete. A partition that changed after it was read is late, too. A deleted partition counts as read, because absence proves
    nothing.

    :param read: fingerprints, by name, of the partitions that the table contains.
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
    return PartitionBatch(
        readable=tuple(one for one in partitions if one.name in read or one.name in new),
        taken=tuple(one for one in partitions if one.name in moved),
        late=(*changed, *(one for one in taken if reached is not None and one.end <= reached)),
        waiting=tuple(waiting),
        gone=tuple(sorted(set(read) - {one.name for one in partitions})),
        rewritten=next((one for one in changed if one.obstacle is not None), None),
        watermark=max(ends, default=None),
    )


def in_order(seen: Iterable[SeenPartition], order: PartitionOrder) -> list[SeenPartition]:
    """Sort partitions by name, time or creation time; ties are sorted by name."""
    if order is PartitionOrder.TIME:
        return sorted(seen, key=lambda one: (one.start, one.name))
    if order is PartitionOrder.CREATED:
        return sorted(seen, key=lambda one: (one.created_at or _ALWAYS, one.name))
    return sorted(seen, key=lambda one: one.name)


def is_from(one: SeenPartition, watermark: PartitionWatermark) -> bool:
    """Return whether a partition is at or after the first one that the source is configured to read."""
    if watermark.start is None:
        return True
    if watermark.order is PartitionOrder.NAME:
        return one.name >= watermark.start
    start = start_time(watermark.start)
    if watermark.order is PartitionOrder.TIME:
        return one.start >= start
    return one.created_at is not None and one.created_at >= start.replace(tzinfo=UTC)


def start_time(text: str) -> datetime:
    """Parse the time from which on partitions are read, naive: ``2021-03-19`` or ``2021-03-19 10:00:00``.

    :raises ValueError: when the text is not a time.
    """
    return TimeExtractor().time_of({"": text}, ("",))


def reached_by(
    read: Iterable[str], time_of: Callable[[Mapping[str, str]], datetime], watermark: PartitionWatermark
) -> datetime | None:
    """The watermark after the partitions of these names were read; ``None`` without names.

    :raises PartitionTimeError: when a name does not form a time.
    """
    return max((watermark.end_of(time_of(parse_spec(name))) for name in read if name), default=None)


KIND = "partition.time-extractor.kind"
CLASS = "partition.time-extractor.class"
PATTERN = "partition.time-extractor.timestamp-pattern"
FORMATTER = "partition.time-extractor.timestamp-formatter"
INTERVAL = "partition.time-interval"
ORDER = "streaming-source.partition-order"
START = "streaming-source.consume-start-offset"
MONITOR = "streaming-source.monitor-interval"

OPTIONS = (KIND, CLASS, PATTERN, FORMATTER, INTERVAL, ORDER, START, MONITOR)
"""Options of this package, which are not passed to Spark's reader."""

_MONTHS = re.compile(r"(?:interval\s+)?'?\d{1,4}'?\s*(?:month|year)s?", re.IGNORECASE)
_ISO_MONTHS = re.compile(r"P(?=\w)(?:\d{1,4}Y)?(?:\d{1,4}M)?", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+)'?\s*([my])", re.IGNORECASE)
_UNITS = {"m": 1, "y": 12}
_MOST_MONTHS = 1_200
"""A century, the limit of all lengths of time."""

_PREFIXES = ("partition.time", "streaming-source.")
_KINDS = ("default", "custom")


def is_ours(option: str) -> bool:
    """Return whether an option of a source belongs, or was meant to belong, to this package."""
    return option.lower().startswith(_PREFIXES)


def read_watermark(options: Mapping[str, str], complete: CompleteWhen) -> PartitionWatermark:
    """Parse the watermark of a source from valid options."""
    custom = options.get(KIND, "default").lower() == "custom"
    length, months = _interval(options[INTERVAL])
    return PartitionWatermark(
        interval=length,
        extractor=TimeExtractor(options.get(PATTERN), options.get(FORMATTER), options.get(CLASS) if custom else None),
        complete=complete,
        order=PartitionOrder(options.get(ORDER, PartitionOrder.NAME).lower()),
        start=options.get(START),
        monitor_interval=_length(options[MONITOR]) if MONITOR in options else None,
        months=months,
    )


def option_problems(options: Mapping[str, str], keys: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Validate the watermark options of a source; yields an option and the correction of its mistake.

    :param keys: the partition keys of the source; ``None`` when only its catalog knows them.
    """
    for option, value in options.items():
        if is_ours(option):
            if option not in OPTIONS:
                yield option, f"a source has no option {option!r}{did_you_mean(option, OPTIONS)}"
            elif problem := _problem(_CHECKS[option], value):
                yield option, problem
    yield from _extractor_problems(options, keys)
    if START in options:
        by_name = options.get(ORDER, PartitionOrder.NAME).lower() == PartitionOrder.NAME
        if problem := _problem(parse_spec if by_name else start_time, options[START]):
            yield START, problem if by_name else f"{options[START]!r} is no time; write for example 2021-03-19 10:00:00"


def _extractor_problems(options: Mapping[str, str], keys: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    custom = options.get(KIND, "default").lower() == "custom"
    if custom and CLASS not in options:
        yield KIND, f"kind 'custom' needs option '{CLASS}': module:Class"
    for option in (PATTERN, FORMATTER) if custom else ():
        if option in options:
            yield option, "a custom extractor gives times itself; remove it"
    if CLASS in options and not custom:
        yield CLASS, f"it is used with '{KIND}: custom' only; add that, or remove the class"
    if keys and PATTERN in options and (problem := _problem(TimeExtractor(options[PATTERN]).check, keys)):
        yield PATTERN, problem


def _problem(check: Callable[..., object], value: object) -> str | None:
    try:
        check(value)
    except ValueError as error:
        return str(error)
    return None


def _length(text: str) -> timedelta:
    try:
        return Freshness.parse(text).period
    except ValueError:
        raise ValueError(f"{text!r} is no length of time; write for example '1 hour'") from None


def _interval(text: str) -> tuple[timedelta, int]:
    """A length of time or a number of months, whose length varies."""
    stripped = text.strip()
    if match := _MONTHS.fullmatch(stripped) or _ISO_MONTHS.fullmatch(stripped):
        months = sum(int(number) * _UNITS[unit.lower()] for number, unit in _AMOUNT.findall(match[0]))
        if 0 < months <= _MOST_MONTHS:
            return timedelta(), months
    try:
        return Freshness.parse(text).period, 0
    except ValueError:
        raise ValueError(f"{text!r} is no length of time; write for example '1 hour' or '1 month'") from None


def _one_of(named: str, legal: Sequence[str]) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value.lower() not in legal:
            raise ValueError(f"{value!r} is no {named}; use {' | '.join(legal)}{did_you_mean(value, legal)}")

    return check


def _check_class(text: str) -> None:
    if not is_class_path(text):
        raise ValueError(f"{text!r} is no class; write module:Class")


_CHECKS: Mapping[str, Callable[[str], object]] = {
    KIND: _one_of("kind of extractor", _KINDS),
    CLASS: _check_class,
    PATTERN: str,
    FORMATTER: lambda pattern: check_formatters({"": pattern}),
    INTERVAL: _interval,
    ORDER: _one_of("order of partitions", tuple(PartitionOrder)),
    START: str,
    MONITOR: _length,
}


def is_class_path(text: str) -> bool:
    """Return whether a text has the form ``module:Class``."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
