"""Frozen partitions: a condition on partition keys that, once it holds for a partition, holds for ever."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.partition_dates import formatted, parsed
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.schedule import on_the_wall

OPERATORS: Mapping[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
"""Comparison operators of SQL."""


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """Comparison of a partition key with a text, with an integer, or with the time that is an age before now."""

    key: str
    operator: str
    value: str | int | timedelta

    @property
    def is_of_time(self) -> bool:
        """Whether its result depends on the time."""
        return isinstance(self.value, timedelta)


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions of which all must hold, or any."""

    parts: tuple[FrozenCondition, ...]
    is_any: bool


FrozenCondition = KeyComparison | Combination
"""A condition that keeps partitions from being refreshed."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The date patterns and the time zone of a table, and the current time, which is aware."""

    formatters: Mapping[str, str]
    timezone: str
    now: datetime


def comparisons(condition: FrozenCondition) -> Iterator[KeyComparison]:
    """Yield the comparisons of a condition."""
    if isinstance(condition, KeyComparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons(part)


def holds(condition: FrozenCondition, spec: Mapping[str, str | None], calendar: Calendar) -> bool | None:
    """Return whether a condition holds for a partition; ``None`` if that depends on keys that the spec omits."""
    if isinstance(condition, KeyComparison):
        return _compares(condition, spec[condition.key], calendar) if condition.key in spec else None
    results = {holds(part, spec, calendar) for part in condition.parts}
    if condition.is_any in results:
        return condition.is_any
    return None if None in results else not condition.is_any


def _compares(comparison: KeyComparison, value: str | None, calendar: Calendar) -> bool:
    """Compare a value with a date pattern as a time, and others as integers or texts. Null is never frozen."""
    if value is None or value == NULL_PARTITION:
        return False
    compare, pattern = OPERATORS[comparison.operator], calendar.formatters.get(comparison.key)
    try:
        if pattern is not None:
            return compare(parsed(value, pattern), parsed(_bound(comparison, pattern, calendar), pattern))
        if isinstance(comparison.value, int):
            return compare(int(value), comparison.value)
    except ValueError:  # another engine wrote it
        return False
    return compare(value, str(comparison.value))


def _bound(comparison: KeyComparison, pattern: str, calendar: Calendar) -> str:
    if isinstance(comparison.value, timedelta):
        now = on_the_wall(calendar.now.astimezone(ZoneInfo(calendar.timezone)))
        return formatted(now - comparison.value, pattern)
    return str(comparison.value)
