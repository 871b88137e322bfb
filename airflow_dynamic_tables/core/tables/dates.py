"""Date patterns and wall-clock arithmetic: which time partitions a scheduled refresh replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.wall_clock import elapsed, is_shown, on_the_wall
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, WHOLE_TABLE, PartitionSet, describe

FORMATTER = re.compile(r"partition\.fields\.(?P<column>.+)\.(?:date-formatter|time-formatter)")
"""Options of a table that say how a partition key is named by time."""

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS = "yMdHms"
"""Letters of the fields of a time, coarse ones first."""

_FIELD_NAMES = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_HINTS = {"Y": "y", "D": "d", "h": "H", "k": "H", "K": "H", "u": "y", "L": "M"}
"""What was probably meant by a letter that Java has and that is not legal here."""

_STEPS = (
    timedelta(days=366),
    timedelta(days=31),
    timedelta(days=1),
    timedelta(hours=1),
    timedelta(minutes=1),
    timedelta(seconds=1),
)
"""For each field a step that surely leaves the year, the month …; flooring brings it back to the start of the next one."""

_SOME_DAY = {"year": 2000, "month": 1, "day": 1}
"""Of a leap year and a month with 31 days: for patterns that lack them."""

_CENTURY = 2000
"""Years before the ones that ``yy`` means; their last two digits are all that is compared."""

_HOUR = Freshness(3_600)
_DAY = timedelta(days=1)


class MissingDateFieldError(ValueError):
    """The date formatters of a table leave out a field that a finer one needs: an hour needs its day."""


def check_formatters(formatters: Mapping[str, str]) -> None:
    """Check Java date patterns that together name a partition.

    Legal letters are y M d H m s; text in single quotes is literal. The fields must have no hole: an hour needs its day.

    :param formatters: partition column to pattern.
    :raises ValueError: says what is wrong and what to write instead.
    :raises MissingDateFieldError: when each pattern is legal by itself, but not all of them together.
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
    """The partitions that a refresh scheduled for that time replaces, oldest first; without formatters the whole table.

    They reach from the one that contains T - freshness up to, and without, the one that contains T; if these are none, it is
    the one that contains T - freshness. All arithmetic is on the wall clock of ``timezone``, so that a DST change neither
    skips nor repeats a day.

    Hours and minutes are named by the wall clock too. Those that autumn repeats share one partition, which is over when its
    second occurrence is: hourly ticks plan it then, so what belongs to the first one appears an hour late. Those that spring
    skips are planned with their neighbours and stay empty; what the ticks around the gap would have covered is planned by the
    next tick that exists, sometimes twice, never less.

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
    """T - freshness on the wall clock, or as much time ago where the ticks before T kept to elapsed time."""
    start = on_the_wall(time) - freshness.period
    if freshness <= _HOUR or _pushed_on(time, freshness):
        start = min(start, on_the_wall(elapsed(time, -freshness.period)))
    return start


def _pushed_on(time: datetime, freshness: Freshness) -> bool:
    """Whether a tick may be at this time because spring skipped its own (02:00 comes at 03:00).

    A derived schedule ticks at multiples of the freshness from midnight, which tells a tick of its own from one pushed on.
    Any other schedule may have pushed it: to plan a partition again is harmless, to miss one is not.
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
    """A time as a Java date pattern of the letters y M d H m s names it."""
    return "".join(_field(time, letters) if letters else text for letters, text in _tokens(pattern))


def parsed(text: str, pattern: str) -> datetime:
    """The time, naive, that a Java date pattern of the letters y M d H m s names so; fields that it lacks are the first ones.

    :raises ValueError: when the text is none.
    """
    fields = _fields(text, pattern)
    if not fields:
        raise ValueError(f"{text!r} is no date as {pattern!r} writes it")
    return datetime(**{"month": 1, "day": 1, **fields})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock


def start_of(spec: Mapping[str, str | None], formatters: Mapping[str, str]) -> datetime:
    """The time, naive, with which a partition begins that date formatters name.

    :raises ValueError: when its values are no time.
    """
    own = (_fields(str(spec.get(column)), pattern) for column, pattern in formatters.items())
    fields = {name: number for each in own for name, number in each.items()}
    if "year" not in fields:
        raise ValueError(f"{dict(spec)} is no time")
    return datetime(**{"month": 1, "day": 1, **fields})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock


@dataclass(frozen=True, slots=True)
class TimePartition:
    """A partition that date formatters name: its spec, and the time of its rows, on the wall, without ``end``."""

    spec: Mapping[str, str]
    start: datetime
    end: datetime


def partitions_within(first: datetime, end: datetime, formatters: Mapping[str, str]) -> Iterator[TimePartition]:
    """The partitions that have rows of a stretch of time, in order; formatters must name some.

    :param first: naive, as ``end``, which is not within.
    """
    grain = max(_FIELDS.index(letters[0]) for pattern in formatters.values() for letters, _ in _tokens(pattern) if letters)
    for start in _range(_floor(first, grain), end, grain):
        spec = {column: formatted(start, pattern) for column, pattern in formatters.items()}
        yield TimePartition(spec, start, _floor(start + _STEPS[grain], grain))


def partitions_between(
    first: Mapping[str, str], last: Mapping[str, str], formatters: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """The partitions from one to another, both of them too, in order; keys without a date formatter are the same in both.

    :raises ValueError: says why these are no ends of a range.
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
    """Check that the values of a partition are such that its date formatters can give: what they cannot give has no rows.

    Coarser fields that one pattern lacks are those of the other columns, so that day 30 is none of a month 02 beside it.

    :param spec: partition column to value; null is any table's.
    :raises ValueError: names the first value that is none.
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
    """The fields of a time in a text that a pattern wrote; none when it did not write it."""
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
