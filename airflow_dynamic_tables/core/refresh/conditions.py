"""Conditions of queries on the rows of a source, and whether rows may meet them of which only partition and statistics are known.

A row that does not certainly meet a condition is not returned by the query: Spark drops rows for which it is false or null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from airflow_dynamic_tables.core.refresh.key_sources import Formula, KeyColumn, columns_of, day_of, values_of

Bound = str | int | float | bool | date | Decimal
"""A value that is compared."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What the statistics of a file say about a column; ``None`` is an unknown bound.

    Values other than null are not less than ``lower`` and not greater than ``upper``, which need not be values of the column.
    """

    lower: Bound | None = None
    upper: Bound | None = None
    may_have_nulls: bool = True
    may_have_values: bool = True


@dataclass(frozen=True, slots=True)
class SomeRows:
    """Rows of a source of which only this is known: their partition and the ranges of columns, by names in lower case."""

    partition: Mapping[str, str | None]
    timezone: str
    ranges: Mapping[str, ColumnRange] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of two formulas; ``sign`` is one of :data:`NEGATED`."""

    sign: str
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class NullTest:
    """A formula is null, or is not."""

    formula: Formula
    is_null: bool


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of several conditions holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of several conditions hold. Without any, it stands for a condition that is not analysed, which may hold."""

    parts: tuple[Condition, ...]


Condition = Compared | NullTest | AnyOf | AllOf

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The comparisons with those that hold where they are false."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition without which no row of a source is returned, as text and with its character offset in the query."""

    condition: Condition
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class SourceFilters:
    """The filters of one source, for each of the places where the query reads it."""

    readings: tuple[tuple[Filter, ...], ...]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the filters."""
        return frozenset(column.name for reading in self.readings for each in reading for column in columns_in(each.condition))

    def excluding(self, rows: SomeRows) -> tuple[Filter, ...] | None:
        """Return filters by which no reading returns any of some rows; ``None`` if one may."""
        found: dict[Filter, None] = {}
        for reading in self.readings:
            excluding = next((each for each in reading if not may_hold(each.condition, rows)), None)
            if excluding is None:
                return None
            found[excluding] = None
        return tuple(found)


def may_hold(condition: Condition, rows: SomeRows) -> bool:
    """Return whether a condition may be true for one of some rows."""
    match condition:
        case AnyOf(parts):
            return any(may_hold(part, rows) for part in parts)
        case AllOf(parts):
            return all(may_hold(part, rows) for part in parts)
        case NullTest(formula, is_null):
            return _may_be_null(formula, rows) if is_null else bool(_intervals(formula, rows))
        case Compared(sign, left, right):
            pairs = ((one, other) for one in _intervals(left, rows) for other in _intervals(right, rows))
            return any(_may_compare(sign, one, other) for one, other in pairs)


def columns_in(condition: Condition) -> Iterator[KeyColumn]:
    """Yield the columns of a condition."""
    for formula in formulas_in(condition):
        yield from columns_of(formula)


def formulas_in(condition: Condition) -> Iterator[Formula]:
    """Yield the formulas that a condition compares."""
    match condition:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from formulas_in(part)
        case NullTest(formula):
            yield formula
        case Compared(_, left, right):
            yield from (left, right)


def over(condition: Condition, convert: Callable[[Formula], Formula]) -> Condition:
    """Return a condition with its formulas converted."""
    match condition:
        case AnyOf(parts):
            return AnyOf(tuple(over(part, convert) for part in parts))
        case AllOf(parts):
            return AllOf(tuple(over(part, convert) for part in parts))
        case NullTest(formula):
            return replace(condition, formula=convert(formula))
        case Compared(_, left, right):
            return replace(condition, left=convert(left), right=convert(right))


Interval = tuple[Bound | None, Bound | None]
"""A lower and an upper bound, both included; ``None`` is none."""

_ANY: Sequence[Interval] = ((None, None),)


def _intervals(formula: Formula, rows: SomeRows) -> Sequence[Interval]:
    """Return intervals of all values of a formula that are not null."""
    if (values := values_of(formula, rows.partition, rows.timezone)) is not None:
        return [(None, None) if isinstance(value, datetime) else (value, value) for value in values]
    if not isinstance(formula, KeyColumn) or (known := _range_of(formula, rows)) is None:
        return _ANY
    return [(known.lower, known.upper)] if known.may_have_values else ()


def _may_be_null(formula: Formula, rows: SomeRows) -> bool:
    if values_of(formula, rows.partition, rows.timezone) is not None:
        return False
    known = _range_of(formula, rows) if isinstance(formula, KeyColumn) else None
    return known is None or known.may_have_nulls


_ORDERED = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "decimal", "float", "double", "boolean"})
"""Types whose values Spark orders as Python does."""


def _range_of(column: KeyColumn, rows: SomeRows) -> ColumnRange | None:
    kind = (column.type or "").partition("(")[0]
    return rows.ranges.get(column.name) if kind in _ORDERED else None


def _may_compare(sign: str, one: Interval, other: Interval) -> bool:
    """Return whether values of two intervals may compare like this."""
    (least, most), (others_least, others_most) = one, other
    match sign:
        case "<" | "<=":
            return _may(_SIGNS[sign], least, others_most, (one, other))
        case ">" | ">=":
            return _may(_SIGNS[sign], most, others_least, (one, other))
        case "=":
            return _may(operator.le, least, others_most, (one, other)) and _may(operator.ge, most, others_least, (one, other))
    are_single = least is not None and least == most and others_least is not None and others_least == others_most
    return not are_single or _may(operator.ne, least, others_least, (one, other))


_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _may(compare: Callable[[Any, Any], bool], one: Bound | None, other: Bound | None, of: tuple[Interval, Interval]) -> bool:
    """Compare as Spark does; True if a bound is unknown, or the conversion of one of them is."""
    if one is None or other is None:
        return True
    kinds = _kind(one), _kind(other)
    if kinds[0] == kinds[1]:
        return compare(one, other)
    if {*kinds} == {"number", "float"}:
        return compare(float(one), float(other))  # type: ignore[arg-type]  # both are numbers
    if {*kinds} == {"date", "text"} and all(
        first == last for kind, (first, last) in zip(kinds, of, strict=True) if kind == "text"
    ):
        # Spark converts the text; only a single one is known to be a date, and texts are not ordered as their dates are.
        days = day_of(one), day_of(other)
        return None in days or compare(*days)
    return True


def _kind(value: Bound) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | Decimal():
            return "number"
        case float():
            return "float"
        case str():
            return "text"
    return "date"
