"""Values of query tests: as declared, as Spark SQL, and compared with the rows of a query."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.identifiers import literal
from airflow_dynamic_tables.core.types import Array, DataType, Map, Primitive, Struct, replace_primitives

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_NOT_FINITE = re.compile(r"(?P<sign>[-+]?)\.?(?:(?P<nan>nan)|inf(?:inity)?)", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T](?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
    r" ?(?P<offset>Z|[-+][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DIGITS = 100
"""Decimal precision used here, more than any decimal of Spark."""


def spelled(text: str, kind: DataType, zone: str) -> str:
    """The canonical spelling of a value.

    :param zone: of a time without an offset.
    :raises ValueError: when the text is not a value of that type.
    """
    if not isinstance(kind, Primitive) or kind.name not in _SPELLINGS:
        raise ValueError(f"a value of type {kind} cannot be written in YAML; give this table as 'sql'")
    return _SPELLINGS[kind.name](text, kind, zone)


def _boolean(text: str, kind: Primitive, _zone: str) -> str:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is no {kind}; write true or false")
    return "true" if text.lower() in _TRUE else "false"


def _integer(text: str, kind: Primitive, _zone: str) -> str:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a whole number")
    number, beyond = int(text), 1 << (_BITS[kind.name] - 1)
    if not -beyond <= number < beyond:
        raise ValueError(f"{text} is beyond {kind}, which reaches from {-beyond} to {beyond - 1}")
    return str(number)


def _decimal(text: str, kind: Primitive, _zone: str) -> str:
    precision, scale = kind.arguments
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a number such as 1.50")
    with localcontext(prec=_DIGITS):
        number = Decimal(text)
        try:
            exact = number.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            exact = Decimal("Infinity")
        is_beyond = abs(exact) >= Decimal(10) ** (precision - scale)
        is_rounded = exact != number
    if is_beyond:
        raise ValueError(f"{text} is beyond {kind}, which has {precision - scale} digits before the point")
    if is_rounded:
        raise ValueError(f"{text} has more than the {scale} digits that {kind} has behind the point")
    return f"{abs(exact) if exact == 0 else exact:f}"


def _float(text: str, kind: Primitive, _zone: str) -> str:
    if special := _NOT_FINITE.fullmatch(text):
        return "NaN" if special["nan"] else f"{special['sign'].replace('+', '')}Infinity"
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no {kind}; write a number such as 1.5, NaN or -Infinity")
    number = float(text)
    if kind.name == "double":
        if math.isinf(number):
            raise ValueError(f"{text} is beyond {kind}")
        return repr(number)
    try:
        single = _single(number)
    except OverflowError:
        raise ValueError(f"{text} is beyond {kind}") from None
    return next(repr(float(short)) for digits in range(1, 10) if _single(float(short := f"{single:.{digits}g}")) == single)


def _single(number: float) -> float:
    """The nearest single-precision number."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _text(text: str, kind: Primitive, _zone: str) -> str:
    if kind.arguments and len(text) > kind.arguments[0]:
        raise ValueError(f"{text!r} is longer than {kind}")
    return text


def _binary(text: str, kind: Primitive, _zone: str) -> str:
    try:
        return bytes.fromhex(text).hex().upper()
    except ValueError:
        raise ValueError(f"{text!r} is no {kind}; write hexadecimal digits such as CAFE") from None


def _date(text: str, kind: Primitive, _zone: str) -> str:
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass  # e.g. the 31st of a short month
    raise ValueError(f"{text!r} is no {kind}; write for example 2024-01-31")


def _local_time(text: str, kind: Primitive, _zone: str) -> str:
    time, offset = _parsed(text, kind)
    if offset is not None:
        raise ValueError(f"{text!r} has an offset, and a {kind} has none; remove it")
    return time.isoformat(" ")


def _instant(text: str, kind: Primitive, zone: str) -> str:
    time, offset = _parsed(text, kind)
    if offset is not None:
        return _in_zone(datetime.fromisoformat(f"{time.isoformat()}{offset}"), zone, text)
    instant = time.replace(tzinfo=ZoneInfo(zone))
    if instant.utcoffset() != instant.replace(fold=1).utcoffset():
        does_exist = instant.astimezone(UTC).astimezone(instant.tzinfo).replace(tzinfo=None) == time
        what = "is there twice" if does_exist else "does not exist"
        raise ValueError(f"{text} {what} in {zone}, where clocks are changed; write an offset, for example {text}+01:00")
    return _in_zone(instant, zone, text)


def _in_zone(instant: datetime, zone: str, text: str) -> str:
    try:
        return instant.astimezone(UTC).astimezone(ZoneInfo(zone)).isoformat(" ")
    except OverflowError:
        raise ValueError(f"{text} is at the end of the calendar; write a time of the years 2 to 9998") from None


def _parsed(text: str, kind: Primitive) -> tuple[datetime, str | None]:
    """Date and time, and the offset if there is one."""
    parts = _TIME.fullmatch(text)
    try:
        if parts is not None and (parts["clock"] or not parts["offset"]):
            return datetime.fromisoformat(f"{parts['date']} {parts['clock'] or '00:00'}"), parts["offset"]
    except ValueError:
        pass  # e.g. hour 25
    raise ValueError(f"{text!r} is no {kind}; write for example 2024-01-31 06:00:00, or with an offset 2024-01-31T06:00:00+01:00")


def micros_of(instant: str) -> int:
    """Microseconds since 1970 of a canonically spelled time."""
    return (datetime.fromisoformat(instant) - _EPOCH) // timedelta(microseconds=1)


def time_of_micros(micros: int, zone: str) -> str:
    """The canonical spelling of a time; a time beyond Python's calendar as its microseconds since 1970."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).astimezone(ZoneInfo(zone)).isoformat(" ")
    except OverflowError:
        return f"{micros} microseconds since 1970"


_SPELLINGS: Mapping[str, Callable[[str, Primitive, str], str]] = {
    "boolean": _boolean,
    **dict.fromkeys(_BITS, _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("string", "char", "varchar"), _text),
    "binary": _binary,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
}


Cell = str | tuple[Any, ...] | None
"""One value: a canonical spelling, a tuple of parts, or ``None``."""

Row = tuple[Cell, ...]

_TEXTS = ("string", "char", "varchar")


def cell_of(value: object, kind: DataType, zone: str) -> Cell:
    """The cell of a value from YAML: a text, list or mapping.

    :param zone: of times without an offset.
    :raises ValueError: when it is not a value of that type, with the correction.
    """
    if value is None:
        return None
    match kind:
        case Array(element):
            if not isinstance(value, list):
                raise ValueError(f"{_shortened(value)} is no {kind}; write a list")
            return tuple(_not_null(cell_of(item, element, zone), kind.contains_null, "element") for item in value)
        case Map():
            return _map_of(value, kind, zone)
        case Struct():
            return _struct_of(value, kind, zone)
    if not isinstance(value, str):
        raise ValueError(f"{_shortened(value)} is no {kind}")
    return spelled(value, kind, zone)


def _map_of(value: object, kind: Map, zone: str) -> Cell:
    if not isinstance(value, Mapping):
        raise ValueError(f"{_shortened(value)} is no {kind}; write a mapping")
    pairs = {
        cell_of(key, kind.key, zone): _not_null(cell_of(item, kind.value, zone), kind.value_contains_null, "value")
        for key, item in value.items()
    }
    if len(pairs) < len(value):
        raise ValueError(f"{_shortened(value)} has a key twice")
    return _sorted(pairs.items())


def _struct_of(value: object, kind: Struct, zone: str) -> Cell:
    names = [field.name for field in kind.fields]
    if not isinstance(value, Mapping):
        raise ValueError(f"{_shortened(value)} is no {kind}; write a mapping of {', '.join(names)}")
    if unknown := [key for key in value if key not in names]:
        raise ValueError(f"{unknown[0]!r} is no field of {kind}; it has {', '.join(names)}")
    return tuple(
        _not_null(cell_of(value.get(field.name), field.type, zone), field.nullable, f"field {field.name!r}")
        for field in kind.fields
    )


def _not_null(cell: Cell, nullable: bool, what: str) -> Cell:
    if cell is None and not nullable:
        raise ValueError(f"{what} is NULL, and its type does not allow that")
    return cell


def cell_of_spark(value: Any, kind: DataType, zone: str) -> Cell:
    """The cell of a value from the job's output.

    Lists, and texts for primitive values; a struct is a mapping in field order, a map a list of two-entry mappings. Times are
    microseconds since 1970.
    """
    if value is None:
        return None
    match kind:
        case Array(element):
            return tuple(cell_of_spark(item, element, zone) for item in value)
        case Map():
            pairs = (tuple(pair.values()) for pair in value)
            return _sorted((cell_of_spark(key, kind.key, zone), cell_of_spark(item, kind.value, zone)) for key, item in pairs)
        case Struct(fields):
            return tuple(cell_of_spark(item, field.type, zone) for item, field in zip(value.values(), fields, strict=True))
        case Primitive("timestamp"):
            return time_of_micros(int(value), zone)
    try:
        return spelled(str(value), kind, zone)
    except ValueError:  # a date beyond Python's calendar
        return str(value)


def _sorted(pairs: Any) -> Cell:
    """The pairs of a map in a fixed order, because a map is unordered."""
    return tuple(sorted(pairs, key=repr))


def comparable(cell: Cell, kind: DataType) -> Cell:
    """A form of a cell that equals another one when the values are equal in Spark, as 0.0 and -0.0; NaN is NaN, NULL is NULL."""
    if cell is None:
        return None
    match kind:
        case Array(element):
            return tuple(comparable(item, element) for item in cell)
        case Map():
            return _sorted((comparable(key, kind.key), comparable(item, kind.value)) for key, item in _pairs(cell))
        case Struct(fields):
            return tuple(comparable(item, field.type) for item, field in zip(cell, fields, strict=True))
        case Primitive("float" | "double"):
            return "0.0" if cell == "-0.0" else cell
    return cell


def to_plain(cell: Cell, kind: DataType) -> Any:
    """A cell in readable form, as in JSON: texts, lists and mappings."""
    if cell is None:
        return None
    match kind:
        case Array(element):
            return [to_plain(item, element) for item in cell]
        case Map():
            return {str(to_plain(key, kind.key)): to_plain(item, kind.value) for key, item in _pairs(cell)}
        case Struct(fields):
            return {field.name: to_plain(item, field.type) for item, field in zip(cell, fields, strict=True)}
    return cell


def _pairs(cell: Any) -> Sequence[tuple[Cell, Cell]]:
    return [(key, item) for key, item in cell]


def sql_of(cell: Cell, kind: DataType) -> str:
    """A Spark SQL expression with exactly this value and type."""
    seen = seen_by_readers(kind)
    if cell is None:
        return f"CAST(NULL AS {seen})"
    match kind:
        case Array(element):
            parts = f"array({', '.join(sql_of(item, element) for item in cell)})"
        case Map():
            parts = f"map({', '.join(f'{sql_of(key, kind.key)}, {sql_of(item, kind.value)}' for key, item in _pairs(cell))})"
        case Struct(fields):
            named = (f"{literal(field.name)}, {sql_of(item, field.type)}" for item, field in zip(cell, fields, strict=True))
            parts = f"named_struct({', '.join(named)})"
        case Primitive(name):
            return _scalar_sql(str(cell), name, seen)
    return f"CAST({parts} AS {seen})"


def _scalar_sql(text: str, name: str, kind: DataType) -> str:
    if name in _TEXTS:
        return literal(text)
    if name == "binary":
        return f"X'{text}'"
    if name == "timestamp":
        return f"timestamp_micros({micros_of(text)})"
    return f"CAST({literal(text)} AS {kind})"


def seen_by_readers(kind: DataType) -> DataType:
    """The type that readers of a table see: char and varchar become string."""
    return replace_primitives(kind, lambda one: Primitive("string") if one.name in _TEXTS else one)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_MOST_PAIRS = 100_000
"""Maximum number of row pairs compared to match changed rows: about a second."""

PlainRow = Mapping[str, Any]
"""A row in readable form, by column names."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A row with unexpected values: the matching values, and the expected and actual values by column."""

    alike: PlainRow
    expected: PlainRow
    got: PlainRow


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """Differences: missing rows, unexpected rows, and rows with unexpected values."""

    missing: tuple[PlainRow, ...] = ()
    extra: tuple[PlainRow, ...] = ()
    changed: tuple[Changed, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are differences."""
        return bool(self.missing or self.extra or self.changed)


@dataclass(frozen=True, slots=True)
class Columns:
    """The compared columns, and the key that matches the rows of both sides.

    Without ``key``, rows that have most of their values in common are matched.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[str, ...] = ()

    def comparable(self, row: Row) -> Row:
        """A form of a row that equals another one when the rows are equal in Spark."""
        return tuple(comparable(cell, kind) for cell, kind in zip(row, self.types, strict=True))

    def plain(self, row: Row, positions: Iterable[int] | None = None) -> PlainRow:
        """The values of a row, or of some positions, by column names."""
        chosen = range(len(self.names)) if positions is None else positions
        return {self.names[at]: to_plain(row[at], self.types[at]) for at in chosen}


def difference(columns: Columns, expected: Sequence[Row], got: Sequence[Row]) -> RowDifferences:
    """Compare rows as multisets.

    Missing rows are paired with unexpected ones to show which values changed; the pairing does not affect whether there is a
    difference.
    """
    missing = _left_over(columns, expected, got)
    extra = _left_over(columns, got, expected)
    pairs = _by_key(columns, missing, extra) if columns.key else _by_likeness(columns, missing, extra)
    paired_missing = {first for first, _ in pairs}
    paired_extra = {second for _, second in pairs}
    return RowDifferences(
        tuple(columns.plain(row) for at, row in enumerate(missing) if at not in paired_missing),
        tuple(columns.plain(row) for at, row in enumerate(extra) if at not in paired_extra),
        tuple(_changed(columns, missing[first], extra[second]) for first, second in pairs),
    )


def _left_over(columns: Columns, rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The rows in excess of those of the other side, in order."""
    there = Counter(map(columns.comparable, others))
    left = []
    for row in rows:
        same = columns.comparable(row)
        if there[same] > 0:
            there[same] -= 1
        else:
            left.append(row)
    return left


def _by_key(columns: Columns, missing: Sequence[Row], extra: Sequence[Row]) -> list[tuple[int, int]]:
    """Pairs of rows with the same key, if it is unique on both sides."""
    key_at = [columns.names.index(name) for name in columns.key]

    def places(rows: Sequence[Row]) -> dict[Row, list[int]]:
        by_key: dict[Row, list[int]] = {}
        for at, row in enumerate(map(columns.comparable, rows)):
            by_key.setdefault(tuple(row[position] for position in key_at), []).append(at)
        return by_key

    found = places(extra)
    return [(at[0], found[key][0]) for key, at in places(missing).items() if len(at) == 1 and len(found.get(key, ())) == 1]


def _by_likeness(columns: Columns, missing: Sequence[Row], extra: Sequence[Row]) -> list[tuple[int, int]]:
    """Pairs of rows with more than half of their values equal, in order of the missing ones."""
    if len(missing) * len(extra) > _MOST_PAIRS:
        return []
    left = dict(enumerate(map(columns.comparable, extra)))
    pairs = []
    for at, row in enumerate(map(columns.comparable, missing)):
        alike = {other_at: sum(a == b for a, b in zip(row, other, strict=True)) for other_at, other in left.items()}
        best = max(alike, key=alike.__getitem__, default=None)
        if best is not None and 2 * alike[best] > len(columns.names):
            pairs.append((at, best))
            del left[best]
    return pairs


def _changed(columns: Columns, expected: Row, got: Row) -> Changed:
    pairs = list(zip(columns.comparable(expected), columns.comparable(got), strict=True))
    other = [at for at, (first, second) in enumerate(pairs) if first != second]
    alike = [at for at in range(len(pairs)) if at not in other]
    if columns.key:
        alike = [at for at in alike if columns.names[at] in columns.key]
    return Changed(columns.plain(got, alike), columns.plain(expected, other), columns.plain(got, other))
