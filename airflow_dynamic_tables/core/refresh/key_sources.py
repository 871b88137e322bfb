"""Partition lineage: the partitions of a dependent table that a partition of a source can have rows in.

A formula computes a partition key of the dependent table from the partition values of the source. It is evaluated only where the
result certainly equals Spark's: for known functions of values in their canonical spelling. All other values are unknown, and an
unknown value can be any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import product
from math import prod
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_dynamic_tables.core.partition_dates import normal_value
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, parse_spec

_SPELLED_ONCE = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "boolean"})
"""Types whose values have a unique spelling."""

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Sizes of the integer types."""

MOST_DAYS = 4_000
"""Maximum number of days of a range."""

_MOST_COMBINED = 1_000
"""Maximum number of combinations of several keys' values that are listed."""

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_NUMBER = re.compile(r"-?\d{1,9}", re.ASCII)
_YEARS = range(1900, 2200)
"""Years in which Spark and Python agree on the calendar and, mostly, on time zones."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column. Before it is traced to a source, ``relation`` is the name in FROM; afterwards ``type`` is its type, if known."""

    name: str
    relation: str = ""
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A text or a number; only conditions have decimal ones."""

    value: str | int | Decimal


@dataclass(frozen=True, slots=True)
class Call:
    """A function of :data:`FUNCTIONS`, by Spark's name; ``days`` and ``day_texts`` return a range of days around a day.

    ``coalesce`` is only known of columns of several relations, and is never evaluated.
    """

    function: str
    arguments: tuple[Formula, ...]


Formula = KeyColumn | Literal | Call

Value = str | int | date | datetime | bool | Decimal


class _UnknownValueError(ValueError):
    """The value that Spark computes is not certain."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """How one table determines a partition key: rows with a value of the key derive only from rows for which one of these
    formulas has that value.

    ``timezone`` is that of the session. With ``any_other_spelling``, values that are no dates as ``yyyy-MM-dd`` can derive from
    any row.
    """

    formulas: tuple[Formula, ...]
    timezone: str = "UTC"

    @property
    def any_other_spelling(self) -> bool:
        """Whether values that are not spelled as dates are excepted."""
        return any(map(_is_of_day_texts, self.formulas))

    @property
    def without_texts_of_days(self) -> KeySource:
        """The formulas of which the key of a row can be a value; a range of texts only restricts the keys of other tables."""
        return replace(self, formulas=tuple(formula for formula in self.formulas if not _is_of_day_texts(formula)))

    def values(self, partition: Mapping[str, str | None]) -> frozenset[str] | None:
        """Return the values of the key in rows that derive from a partition; ``None`` if it can be any value.

        :param partition: the partition values of the table, by column names in lower case.
        """
        try:
            zone = ZoneInfo(self.timezone)
            return frozenset(text for formula in self.formulas for text in _texts(formula, partition, zone))
        except (_UnknownValueError, ZoneInfoNotFoundError):
            return None


class ObstacleCode(StrEnum):
    """Why tables feed every partition, or why their new rows are not merged."""

    FORM = "FORM"
    """A part of the query has a form that is not analysed."""
    FUNCTION = "FUNCTION"
    """The key is computed by something else than the known functions."""
    GROUPING = "GROUPING"
    JOIN = "JOIN"
    """A join does not keep partitions apart."""
    LIMIT = "LIMIT"
    NO_COLUMN = "NO_COLUMN"
    """It is not certain which column is the key."""
    NO_VERSIONS = "NO_VERSIONS"
    """The source keeps no earlier versions to compare its rows with."""
    NOT_MERGED = "NOT_MERGED"
    """New rows of the source are not merged into the table."""
    NOT_PARTITIONED = "NOT_PARTITIONED"
    """The source is not partitioned by the columns of the key."""
    SETTING = "SETTING"
    SEVERAL_TABLES = "SEVERAL_TABLES"
    STAR = "STAR"
    SUBQUERY = "SUBQUERY"
    TYPES = "TYPES"
    UNREAD = "UNREAD"
    WINDOW = "WINDOW"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What makes tables feed every partition, or prevents a merge, at a character offset of the query, and the remedy.

    No ``sources`` are all tables.
    """

    code: ObstacleCode
    offset: int
    cause: str
    remedy: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """How tables determine a partition key. Tables that are missing in ``sources`` feed every partition.

    If it ``is_closed``, the query returns no row whose key is not of a partition of one of the ``sources``. ``type`` is that of
    the key, if it is known.
    """

    sources: Mapping[str, KeySource]
    obstacles: tuple[Obstacle, ...] = ()
    is_closed: bool = False
    type: str | None = None


ColumnTypes = Mapping[str, Mapping[str, str]]
"""Types of columns by table and column."""


class PartitionMapping:
    """Maps partitions of a source to those of a dependent table."""

    def __init__(self, keys: Mapping[str, KeySource], types: Mapping[str, str]) -> None:
        """Create the mapping.

        :param keys: how the source determines partition keys of the dependent table; other keys can have any value.
        :param types: of the dependent table's columns.
        """
        self.keys = keys
        self._types = types
        self._known: dict[str, _Row] = {}

    def affected(self, partitions: Iterable[str] | None) -> AffectedPartitions:
        """Return the partitions of the dependent table whose rows can derive from some partitions of the source.

        :param partitions: texts of the partitions; ``None`` if they are unknown.
        """
        return AffectedPartitions(self, None if partitions is None else [self._row(text) for text in partitions])

    def feeding(self, specs: Iterable[Mapping[str, str | None]], partitions: Iterable[str]) -> list[str]:
        """Return which partitions of the source, by their texts, may have rows for some partitions of the dependent table."""
        wanted: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for spec in specs:
            keys, values = self.certain(spec)
            wanted.setdefault(keys, set()).add(values)
        return [text for text in partitions if any(_meets(self._row(text), keys, found) for keys, found in wanted.items())]

    def certain(self, spec: Mapping[str, str | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys of a partition of the dependent table whose values differ from all other texts, and these values."""
        found = {key: value for key, value in spec.items() if value is not None and self._is_certain(key, value)}
        return tuple(found), tuple(found.values())

    def _is_certain(self, key: str, value: str) -> bool:
        if key not in self.keys or not _is_canonical(value, self._types.get(key, "")):
            return False
        return _is_day(value) or not self.keys[key].any_other_spelling

    def _row(self, text: str) -> _Row:
        if text not in self._known:
            partition = {name.lower(): value for name, value in (parse_spec(text) if text else {}).items()}
            self._known[text] = {key: self._values(key, partition) for key in self.keys}
        return self._known[text]

    def _values(self, key: str, partition: Mapping[str, str]) -> frozenset[str] | None:
        found = self.keys[key].values(partition)
        return found if found is not None and all(_is_canonical(one, self._types.get(key, "")) for one in found) else None


_Row = Mapping[str, frozenset[str] | None]
"""The values of each key that rows of one source partition can have; ``None`` if they can have any."""


class AffectedPartitions:
    """The partitions of a dependent table whose rows can derive from some partitions of a source, by ``rows`` of the latter."""

    def __init__(self, mapping: PartitionMapping, rows: Sequence[_Row] | None) -> None:
        self._mapping = mapping
        self._rows = rows
        self._listed: dict[tuple[str, ...], tuple[set[tuple[str, ...]], list[tuple[frozenset[str] | None, ...]]]] = {}

    def include(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether rows of a partition may change; an empty spec is the entire table."""
        if self._rows is None:
            return True
        keys, values = self._mapping.certain(spec)
        listed, others = self._by(keys)
        return values in listed or any(_fits(values, other) for other in others)

    def specs(self, keys: Sequence[str]) -> list[dict[str, str]] | None:
        """Return the partitions, by some of their keys; ``None`` if they can be any.

        Those of :meth:`any_other_spelling` are omitted.
        """
        if self._rows is None or not self._mapping.keys.keys() >= set(keys):
            return None
        found: dict[tuple[str, ...], None] = {}
        for row in self._rows:
            if any(row[key] is None for key in keys) or prod(len(row[key] or ()) for key in keys) > MOST_DAYS:
                return None
            found.update(dict.fromkeys(product(*(sorted(row[key] or ()) for key in keys))))
        return [dict(zip(keys, values, strict=True)) for values in found]

    def any_other_spelling(self, keys: Sequence[str]) -> bool:
        """Return whether further partitions can be among them, whose days have another spelling than ``yyyy-MM-dd``."""
        return any(self._mapping.keys[key].any_other_spelling for key in keys)

    def _by(self, keys: tuple[str, ...]) -> tuple[set[tuple[str, ...]], list[tuple[frozenset[str] | None, ...]]]:
        """Return the values of some keys, and the rows that are not listed as they can have too many values."""
        if keys not in self._listed:
            listed: set[tuple[str, ...]] = set()
            others = []
            for row in self._rows or ():
                if (combined := _combined(row, keys)) is not None:
                    listed.update(combined)
                else:
                    others.append(tuple(row[key] for key in keys))
            self._listed[keys] = listed, others
        return self._listed[keys]


def _combined(row: _Row, keys: tuple[str, ...]) -> Iterable[tuple[str, ...]] | None:
    """Return the combinations of the values of some keys; ``None`` if there can be too many."""
    known = [values for key in keys if (values := row[key]) is not None]
    return product(*known) if len(known) == len(keys) and prod(map(len, known)) <= _MOST_COMBINED else None


def _fits(values: Sequence[str], row: Sequence[frozenset[str] | None]) -> bool:
    return all(found is None or value in found for value, found in zip(values, row, strict=True))


def _meets(row: _Row, keys: tuple[str, ...], wanted: Collection[tuple[str, ...]]) -> bool:
    """Return whether a row can have some of the wanted combinations of values."""
    if (combined := _combined(row, keys)) is not None:
        return any(values in wanted for values in combined)
    found = tuple(row[key] for key in keys)
    return any(_fits(values, found) for values in wanted)


def _is_of_day_texts(formula: Formula) -> bool:
    return isinstance(formula, Call) and formula.function == "day_texts"


def columns_of(formula: Formula) -> Iterator[KeyColumn]:
    """Yield the columns of a formula."""
    if isinstance(formula, KeyColumn):
        yield formula
    elif isinstance(formula, Call):
        for argument in formula.arguments:
            yield from columns_of(argument)


def values_of(formula: Formula, partition: Mapping[str, str | None], timezone: str) -> list[Value] | None:
    """Return the values of a formula in the rows of a partition, none of which is null; ``None`` if they are not certain.

    :param partition: the partition values, by column names in lower case.
    """
    try:
        return _evaluated(formula, partition, ZoneInfo(timezone))
    except (_UnknownValueError, ZoneInfoNotFoundError):
        return None


def day_of(value: object) -> date | None:
    """Return a date, or the one that a text is spelled as; ``None`` if it is no such text."""
    try:
        return _day(value)  # type: ignore[arg-type]  # it raises for others
    except _UnknownValueError:
        return None


def _is_canonical(value: str, kind: str) -> bool:
    """Return whether no other text is the same value."""
    if kind not in _SPELLED_ONCE or value == NULL_PARTITION:
        return False
    try:
        is_in_range = kind not in _BITS or abs(2 * int(value) + 1) < 2 ** _BITS[kind]
        return is_in_range and normal_value(value, kind) == value
    except ValueError:
        return False


def _is_day(text: str) -> bool:
    try:
        _day(text)
    except _UnknownValueError:
        return False
    return True


def _texts(formula: Formula, partition: Mapping[str, str | None], zone: ZoneInfo) -> Iterator[str]:
    if isinstance(formula, KeyColumn):
        yield _own_text(formula, partition)
        return
    yield from map(_text, _evaluated(formula, partition, zone))


def _own_text(column: KeyColumn, partition: Mapping[str, str | None]) -> str:
    """Return the text of a column that is a key without any conversion."""
    text = partition.get(column.name)
    is_kept = column.type is None or column.type in _SPELLED_ONCE or column.type.startswith("varchar(")
    if (
        not text
        or text == NULL_PARTITION
        or not is_kept
        or (column.type in _SPELLED_ONCE and not _is_canonical(text, column.type))
    ):
        raise _UnknownValueError(column.name)
    return text


def _evaluated(formula: Formula, partition: Mapping[str, str | None], zone: ZoneInfo) -> list[Value]:
    if isinstance(formula, Literal):
        return [formula.value]
    if isinstance(formula, KeyColumn):
        return [_typed(formula, partition)]
    arguments = [_evaluated(argument, partition, zone) for argument in formula.arguments]
    if formula.function in ("days", "day_texts"):
        days, (first,), (last,) = arguments
        return [each for day in days for each in _range(day, first, last, as_text=formula.function == "day_texts")]
    if prod(map(len, arguments)) > MOST_DAYS:
        raise _UnknownValueError(formula.function)
    try:
        return [FUNCTIONS[formula.function](zone, *values) for values in product(*arguments)]
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise _UnknownValueError(formula.function) from error


def _typed(column: KeyColumn, partition: Mapping[str, str | None]) -> Value:
    text = partition.get(column.name)
    # An empty text is null in Delta tables.
    if not text or column.type is None or not _is_canonical(text, column.type):
        raise _UnknownValueError(column.name)
    if column.type == "date":
        return _day(text)
    if column.type in _BITS:
        return int(text)
    return text == "true" if column.type == "boolean" else text


def _range(day: Value, first: Value, last: Value, *, as_text: bool) -> Iterator[Value]:
    if not isinstance(first, int) or not isinstance(last, int) or last - first > MOST_DAYS:
        raise _UnknownValueError(day)
    start = _day(day)
    for number in range(first, last + 1):
        moved = _moved(start, number)
        yield moved.isoformat() if as_text else moved


def _moved(day: date, days: int) -> date:
    try:
        return _in_range(day + timedelta(days=days))
    except OverflowError as error:
        raise _UnknownValueError(days) from error


def _text(value: Value) -> str:
    """Convert as Spark's cast does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        raise _UnknownValueError(value)
    if isinstance(value, date):
        return value.isoformat()
    text = str(value)
    if not _PRINTABLE.fullmatch(text):
        raise _UnknownValueError(text)
    return text


def _in_range(day: date) -> date:
    if day.year not in _YEARS:
        raise _UnknownValueError(day)
    return day


def _day(value: Value) -> date:
    """Convert to a date as Spark's cast does."""
    if isinstance(value, datetime):
        return _in_range(value.date())
    if isinstance(value, date):
        return _in_range(value)
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        raise _UnknownValueError(value)
    try:
        return _in_range(date.fromisoformat(value))
    except ValueError as error:
        raise _UnknownValueError(value) from error


def _time(zone: ZoneInfo, value: Value) -> datetime:
    """Convert to the start of a day on the wall clock. A time zone may have left out a day, which Spark makes the next one."""
    day = _day(value)
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    if start.astimezone(UTC).astimezone(zone).date() != day:
        raise _UnknownValueError(value)
    return start.replace(tzinfo=None)


def _number(value: Value, most: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or not _NUMBER.fullmatch(str(value)):
        raise _UnknownValueError(value)
    if not -most <= int(value) <= most:
        raise _UnknownValueError(value)
    return int(value)


def _whole(value: Value) -> int:
    """Return an integer argument; texts are no integers without a cast."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _UnknownValueError(value)
    return value


_FIRST_OF = {
    "YEAR": lambda day: day.replace(month=1, day=1),
    "QUARTER": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    "MONTH": lambda day: day.replace(day=1),
    "WEEK": lambda day: day - timedelta(days=day.weekday()),
}
_UNITS: Mapping[str, Callable[[date], date]] = {
    **_FIRST_OF,
    **dict.fromkeys(("YYYY", "YY"), _FIRST_OF["YEAR"]),
    **dict.fromkeys(("MON", "MM"), _FIRST_OF["MONTH"]),
}
_DAY_UNITS = ("DAY", "DD")
_FIELDS = re.compile(r"(%Y|%mstrict|%dstrict)|([-_/. ]?)")


def _date_trunc(zone: ZoneInfo, unit: str, value: Value) -> Value:
    time = _time(zone, value)
    return time if unit.upper() in _DAY_UNITS else _time(zone, _UNITS[unit.upper()](time.date()))


def _fields(pattern: str) -> list[str]:
    """Split a date pattern into fields and signs.

    :param pattern: as sqlglot converts the patterns ``yyyy``, ``MM`` and ``dd``.
    """
    parts = []
    position = 0
    while position < len(pattern):
        match = _FIELDS.match(pattern, position)
        if match is None or not match[0]:
            raise _UnknownValueError(pattern)
        parts.append(match[0])
        position = match.end()
    return parts


def _date_format(zone: ZoneInfo, value: Value, pattern: str) -> Value:
    time = _time(zone, value)
    fields = {"%Y": f"{time.year}", "%mstrict": f"{time.month:02}", "%dstrict": f"{time.day:02}"}
    return "".join(fields.get(part, part) for part in _fields(pattern))


def _to_date(zone: ZoneInfo, value: Value, pattern: str | None = None) -> Value:
    if pattern is None:
        return _day(value)
    parts = _fields(pattern)
    if (
        not isinstance(value, str)
        or parts.count("%Y") != 1
        or len(set(parts) - {*"-_/. "}) != sum(len(part) > 1 for part in parts)
    ):
        raise _UnknownValueError(value)
    digits = {"%Y": r"(?P<year>\d{4})", "%mstrict": r"(?P<month>\d{2})", "%dstrict": r"(?P<day>\d{2})"}
    found = re.fullmatch("".join(digits.get(part, re.escape(part)) for part in parts), value, re.ASCII)
    if found is None or ("%dstrict" in parts and "%mstrict" not in parts):
        raise _UnknownValueError(value)
    return _time(zone, date(**{"month": 1, "day": 1, **{name: int(number) for name, number in found.groupdict().items()}})).date()


def _substring(_: ZoneInfo, value: Value, start: int, length: int | None = None) -> Value:
    text = _text(value)
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if first < 0 or (length is not None and length < 0):
        raise _UnknownValueError(value)
    return text[first:] if length is None else text[first : first + length]


def _pad(_: ZoneInfo, value: Value, length: int, fill: str) -> Value:
    text = _text(value)
    if len(fill) != 1 or length < 0:
        raise _UnknownValueError(fill)
    return text[:length].rjust(length, fill)


def _end(_: ZoneInfo, value: Value, length: int) -> Value:
    if length < 0:
        raise _UnknownValueError(length)
    return _text(value)[-length:] if length else ""


def _replace(_: ZoneInfo, value: Value, search: str, replacement: str) -> Value:
    if not search:
        raise _UnknownValueError(search)
    return _text(value).replace(search, replacement)


def _last_day(_: ZoneInfo, value: Value) -> Value:
    return (_day(value).replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "cast_bigint": lambda _, value: _number(value),
    "cast_date": lambda _, value: _day(value),
    "cast_int": lambda _, value: _number(value),
    "cast_smallint": lambda _, value: _number(value, 2**15 - 1),
    "cast_string": lambda _, value: _text(value),
    "cast_timestamp": _time,
    "cast_tinyint": lambda _, value: _number(value, 2**7 - 1),
    "concat": lambda _, *values: "".join(map(_text, values)),
    "date_add": lambda _, value, days: _moved(_day(value), _whole(days)),
    "date_format": _date_format,
    "date_trunc": _date_trunc,
    "day": lambda _, value: _day(value).day,
    "last_day": _last_day,
    "left": lambda _, value, length: _substring(_, value, 1, length),
    "lower": lambda _, value: _text(value).lower(),
    "lpad": _pad,
    "make_date": lambda _, *values: _in_range(date(*map(_whole, values))),
    "month": lambda _, value: _day(value).month,
    "quarter": lambda _, value: (_day(value).month + 2) // 3,
    "replace": _replace,
    "right": _end,
    "substring": _substring,
    "to_date": _to_date,
    "trim": lambda _, value: _text(value).strip(" "),
    "trunc": lambda _, unit, value: _in_range(_UNITS[unit.upper()](_day(value))),
    "upper": lambda _, value: _text(value).upper(),
    "year": lambda _, value: _day(value).year,
}
"""Functions that are evaluated here as by Spark. Their first argument is the time zone of the session."""
