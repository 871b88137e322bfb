"""Differences between the rows that a test expects and the rows that a query returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.core.query_test_values import Row, comparable, to_plain
from airflow_dynamic_tables.core.types import DataType

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
