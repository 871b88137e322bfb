"""Date patterns and wall-clock arithmetic: the time partitions that a scheduled refresh replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.partitions import NULL_PARTITION, WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.schedule import Freshness, elapsed, is_shown, on_the_wall
from airflow_dynamic_tables.core.schema import Column

FORMATTER = re.compile(r"partition\.fields\.(?P<column>.+)\.(?:date-formatter|time-formatter)")
"""Table options with the date pattern of a partition key."""

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS = "yMdHms"
"""Letters of the date fields, coarsest first."""

_FIELD_NAMES = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_HINTS = {"Y": "y", "D": "d", "h": "H", "k": "H", "K": "H", "u": "y", "L": "M"}
"""Suggestions for Java pattern letters that are not supported here."""

_STEPS = (
    timedelta(days=366),
    timedelta(days=31),
    timedelta(days=1),
    timedelta(hours=1),
    timedelta(minutes=1),
    timedelta(seconds=1),
)
"""For each field, a step that certainly leaves the current year, month etc.; truncation returns to the start of the next one."""

_SOME_DAY = {"year": 2000, "month": 1, "day": 1}
"""In a leap year and a month with 31 days, for patterns without these fields."""

_CENTURY = 2000
"""Added to years written as ``yy``; only their last two digits are compared."""

_HOUR = Freshness(3_600)
_DAY = timedelta(days=1)


class MissingDateFieldError(ValueError):
    """The date formatters of a table omit a field that a finer one requires: an hour requires its day."""


def check_formatters(formatters: Mapping[str, str]) -> None:
    """Check Java date patterns that together define a partition.

    Legal letters are y M d H m s; text in single quotes is literal. Fields must be contiguous: an hour requires its day.

    :raises ValueError: with the mistake and the correction.
    :raises MissingDateFieldError: when each pattern is legal, but their combination is not.
    """
    fields: set[str] = set()
    for column, pattern in formatters.items():
        letters_used = {letters[0] for letters, _ in _tokens(pattern) if letters}
        if not letters_used:
            raise ValueError(
                f"date formatter {pattern!r} of column {column!r} has no date field; use letters of yyyy-MM-dd HH:mm:ss"
            )
        fields |= letters_used
    if fields:
        finest = max(_FIELDS.index(letter) for letter in fields)
        missing = [_FIELD_NAMES[letter] for letter in _FIELDS[:finest] if letter not in fields]
        if missing:
            named = "an hour" if _FIELDS[finest] == "H" else f"a {_FIELD_NAMES[_FIELDS[finest]]}"
            listed = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
            raise MissingDateFieldError(f"the date formatters name {named} without its {listed}")


def scheduled_partitions(
    schedule_time: datetime, freshness: Freshness, formatters: Mapping[str, str], timezone: str
) -> PartitionSet:
    """The partitions that a scheduled refresh replaces, oldest first; the entire table without formatters.

    They range from the partition that contains T - freshness to the one that contains T, excluding the latter; if the range is
    empty, it is the one that contains T - freshness. All arithmetic is on the wall clock of ``timezone``, so that a DST change
    neither skips nor repeats a day.

    Hours and minutes are wall-clock times, too. Those repeated in autumn share one partition, which ends with the second
    occurrence: hourly ticks plan it then, so that rows of the first occurrence appear an hour late. Those skipped in spring are
    planned with their neighbours and stay empty; partitions of ticks around the gap are planned by the next existing tick,
    sometimes twice, but never omitted.

    :param schedule_time: timezone-aware.
    :param formatters: partition column to Java date pattern, see :func:`check_formatters`.
    :raises ValueError: for a naive time or an illegal pattern.
    """
    if schedule_time.tzinfo is None:
        raise ValueError(f"schedule time {schedule_time} has no time zone")
    if not formatters:
        return WHOLE_TABLE
    grain = max((_FIELDS.index(letters[0]) for pattern in formatters.values() for letters, _ in _tokens(pattern) if letters))
    time = schedule_time.astimezone(ZoneInfo(timezone))
    first = _floor(_start(time, freshness), grain)
    starts = list(_range(first, _floor(on_the_wall(time), grain), grain)) or [first]
    return PartitionSet.of({column: formatted(start, pattern) for column, pattern in formatters.items()} for start in starts)


def _start(time: datetime, freshness: Freshness) -> datetime:
    """T - freshness on the wall clock, or in elapsed time where the ticks before T are spaced by elapsed time."""
    start = on_the_wall(time) - freshness.period
    if freshness <= _HOUR or _pushed_on(time, freshness):
        start = min(start, on_the_wall(elapsed(time, -freshness.period)))
    return start


def _pushed_on(time: datetime, freshness: Freshness) -> bool:
    """Return whether a tick may be at this time because its own was skipped in spring (02:00 is moved to 03:00).

    A derived schedule ticks at multiples of the freshness from midnight, which distinguishes regular ticks from moved ones. Any
    other schedule may have moved it: planning a partition twice is harmless, omitting one is not.
    """
    wall = on_the_wall(time)
    own = wall - (_offset(time) - _offset(elapsed(time, -_DAY)))
    return not is_shown(own, time.tzinfo) and (_on_grid(own, freshness) or not _on_grid(wall, freshness))


def _on_grid(wall: datetime, freshness: Freshness) -> bool:
    return not (wall - datetime.combine(wall, datetime.min.time())) % freshness.period


def _offset(time: datetime) -> timedelta:
    return time.utcoffset() or timedelta()


def _range(first: datetime, end: datetime, grain: int) -> Iterator[datetime]:
    while first < end:
        yield first
        first = _floor(first + _STEPS[grain], grain)


def _floor(time: datetime, grain: int) -> datetime:
    smallest = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    coarser = [_FIELD_NAMES[letter] for letter in _FIELDS[: grain + 1]]
    return time.replace(**{name: value for name, value in smallest.items() if name not in coarser})  # type: ignore[arg-type]


def formatted(time: datetime, pattern: str) -> str:
    """Format a time by a Java date pattern of the letters y M d H m s."""
    return "".join(_field(time, letters) if letters else text for letters, text in _tokens(pattern))


def parsed(text: str, pattern: str) -> datetime:
    """Parse a naive time by a Java date pattern of the letters y M d H m s; missing fields have their first values.

    :raises ValueError: when the text does not match.
    """
    fields = _fields(text, pattern)
    if not fields:
        raise ValueError(f"{text!r} is no date as {pattern!r} writes it")
    return datetime(**{"month": 1, "day": 1, **fields})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock


def start_of(spec: Mapping[str, str | None], formatters: Mapping[str, str]) -> datetime:
    """The start, naive, of a partition defined by date formatters.

    :raises ValueError: when its values are not a time.
    """
    own = (_fields(str(spec.get(column)), pattern) for column, pattern in formatters.items())
    fields = {name: number for each in own for name, number in each.items()}
    if "year" not in fields:
        raise ValueError(f"{dict(spec)} is no time")
    return datetime(**{"month": 1, "day": 1, **fields})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock


@dataclass(frozen=True, slots=True)
class TimePartition:
    """A partition defined by date formatters: its spec, and the wall-clock range of its rows, excluding ``end``."""

    spec: Mapping[str, str]
    start: datetime
    end: datetime


def partitions_within(first: datetime, end: datetime, formatters: Mapping[str, str]) -> Iterator[TimePartition]:
    """The partitions that overlap a time range, in order; there must be formatters.

    :param first: naive, as ``end``, which is excluded.
    """
    grain = max(_FIELDS.index(letters[0]) for pattern in formatters.values() for letters, _ in _tokens(pattern) if letters)
    for start in _range(_floor(first, grain), end, grain):
        spec = {column: formatted(start, pattern) for column, pattern in formatters.items()}
        yield TimePartition(spec, start, _floor(start + _STEPS[grain], grain))


def partitions_between(
    first: Mapping[str, str], last: Mapping[str, str], formatters: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """The partitions of an inclusive range, in order; keys without date formatter must be equal at both ends.

    :raises ValueError: with the reason why the range is invalid.
    """
    if set(first) != set(last):
        raise ValueError(f"a range has the same keys at both ends, not {', '.join(first)} and {', '.join(last)}")
    others = {column: value for column, value in first.items() if column not in formatters}
    for column, value in others.items():
        if last[column] != value:
            raise ValueError(f"no date formatter says what lies between {column}={value} and {column}={last[column]}")
    if missing := [column for column in formatters if column not in first]:
        raise ValueError(f"a range needs {missing[0]!r}, too")
    for end in (first, last):
        check_dates(end, formatters)
    start, end_start = start_of(first, formatters), start_of(last, formatters)
    if end_start < start:
        raise ValueError(f"the range ends before it begins: {describe(first)}..{describe(last)}")
    for partition in partitions_within(start, end_start + timedelta.resolution, formatters):
        yield {column: partition.spec.get(column, value) for column, value in first.items()}


def check_dates(spec: Mapping[str, str | None], formatters: Mapping[str, str]) -> None:
    """Check that date formatters can produce the values of a partition; other partitions have no rows.

    Coarser fields that one pattern lacks are taken from the other columns, so that day 30 is invalid beside month 02.

    :param spec: partition column to value; null is always valid.
    :raises ValueError: names the first invalid value.
    """
    patterns = {column: pattern for column, pattern in formatters.items() if spec.get(column) not in (None, NULL_PARTITION)}
    fields = {column: _fields(str(spec[column]), pattern) for column, pattern in patterns.items()}
    known = {name: number for own in fields.values() for name, number in own.items()}
    order = list(_FIELD_NAMES.values())
    for column, pattern in patterns.items():
        finest = max(map(order.index, fields[column]), default=0)
        coarser = {name: number for name, number in known.items() if order.index(name) < finest}
        try:
            time = datetime(**{**_SOME_DAY, **coarser, **fields[column]})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
            is_given = formatted(time, pattern) == spec[column]
        except ValueError:
            is_given = False
        if not is_given:
            example = formatted(datetime(2024, 1, 31, 6), pattern)  # noqa: DTZ001 - wall clock
            raise ValueError(f"{column}={spec[column]} is no date as {pattern!r} writes it; write for example {column}={example}")


def _fields(value: str, pattern: str) -> dict[str, int]:
    """Parse the date fields of a text by a pattern; empty when it does not match."""
    tokens = list(_tokens(pattern))
    expression = "".join(f"({_digits(letters)})" if letters else re.escape(text) for letters, text in tokens)
    match = re.fullmatch(expression, value, re.ASCII)
    if match is None:
        return {}
    fields = [letters for letters, _ in tokens if letters]
    return {
        _FIELD_NAMES[letters[0]]: int(number) + (_CENTURY if letters == "yy" else 0)
        for letters, number in zip(fields, match.groups(), strict=True)
    }


def _digits(letters: str) -> str:
    longest = 4 if letters[0] == "y" and letters != "yy" else 2
    return rf"\d{{{len(letters)},{max(len(letters), longest)}}}"


def _field(time: datetime, letters: str) -> str:
    value = str(getattr(time, _FIELD_NAMES[letters[0]]))
    return value[-2:] if letters == "yy" else value.zfill(len(letters))


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    """Pairs of (field letters, literal text), one of them empty."""
    position = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != position:
            break
        position = match.end()
        letter = match[2]
        if letter is None:
            text = match[0] if match[1] is None else match[1].replace("''", "'") or "'"
            yield "", text
        elif letter not in _FIELDS:
            hint = f"; write {_HINTS[letter] * len(match[0])!r}" if letter in _HINTS else "; legal are y M d H m s"
            raise ValueError(f"date formatter {pattern!r}: {match[0]!r} is not supported{hint}")
        elif letter == "M" and len(match[0]) > 2:
            raise ValueError(f"date formatter {pattern!r}: month names are not supported; write 'MM'")
        else:
            yield match[0], ""

    if position != len(pattern):
        raise ValueError(f"date formatter {pattern!r}: a single quote is not closed")


_SAMPLE = datetime(2001, 2, 3, 4, 5, 6)  # noqa: DTZ001 - wall clock
"""A sample whose fields all have one digit."""

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_BOOLEANS = {**dict.fromkeys(("true", "t", "yes", "y", "1"), "true"), **dict.fromkeys(("false", "f", "no", "n", "0"), "false")}


def normal_value(value: str | None, kind: str) -> str | None:
    """The canonical spelling of a value of a type; values of types that are unusual for partition keys are kept.

    :param kind: Spark's DDL text of the type.
    :raises ValueError: when it is not a value of that type.
    """
    if value is None or value == NULL_PARTITION:
        return value
    try:
        if kind in _INTEGERS:
            if not _INTEGER.fullmatch(value):
                raise ValueError(value)
            return str(int(value))
        if kind == "date":
            return date.fromisoformat(value.strip()).isoformat()
        if kind == "boolean":
            return _BOOLEANS[value.strip().lower()]
        if kind.startswith("decimal"):
            scale = int(kind.partition(",")[2].rstrip(")") or 0)
            return str(Decimal(value).quantize(Decimal(1).scaleb(-scale)))
    except (ValueError, KeyError, InvalidOperation):
        raise ValueError(f"{value!r} is no {kind}") from None
    return value


def formatter_problem(pattern: str, kind: str) -> str | None:
    """Return why a date pattern does not produce canonical values of a type, with the correction; ``None`` when it does.

    :param kind: Spark's DDL text of the type.
    """
    sample = formatted(_SAMPLE, pattern)
    try:
        normal = normal_value(sample, kind)
    except ValueError:
        normal = None
    if normal == sample:
        return None
    advice = "write single letters such as H, or CAST it AS STRING"
    if kind == "date":
        advice = "write yyyy-MM-dd, or yyyy-MM-'01' for months"
    return f"the column is of type {kind}, and {pattern!r} gives {sample!r}, which that type does not have; {advice}"


def normalised(partitions: PartitionSet, columns: Sequence[Column]) -> PartitionSet:
    """A set of partitions with canonical values of the columns' types; values of unknown columns are kept.

    :raises ValueError: when a value is not of its column's type.
    """
    kinds = {column.name: column.type for column in columns}
    return PartitionSet.of(_normal_spec(spec, kinds) for spec in partitions)


def _normal_spec(spec: Mapping[str, str | None], kinds: Mapping[str, str]) -> dict[str, str | None]:
    try:
        return {key: normal_value(value, kinds.get(key, "string")) for key, value in spec.items()}
    except ValueError as error:
        raise ValueError(f"partition {describe(spec)!r}: {error}") from error
