"""What is different between the rows that a test expects and those that a query returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.core.query_tests.values import Row, comparable, to_plain
from airflow_dynamic_tables.core.tables.types import DataType

_MOST_PAIRS = 100_000
"""Pairs of rows that are looked at to tell which row was changed into which: a second of time."""

PlainRow = Mapping[str, Any]
"""A row as people read it, by the names of its columns."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A row that is otherwise than expected: what is alike in both, and by column what was expected and what is there."""

    alike: PlainRow
    expected: PlainRow
    got: PlainRow


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different: rows that are missing, rows that nobody expects, and rows that are otherwise than expected."""

    missing: tuple[PlainRow, ...] = ()
    extra: tuple[PlainRow, ...] = ()
    changed: tuple[Changed, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.missing or self.extra or self.changed)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are compared, and by which of them a row of either side is found on the other one.

    Without ``key``, rows that have most of their values in common are taken for the same one.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[str, ...] = ()

    def comparable(self, row: Row) -> Row:
        """A row that equals another one when they are the same to Spark."""
        return tuple(comparable(cell, kind) for cell, kind in zip(row, self.types, strict=True))

    def plain(self, row: Row, positions: Iterable[int] | None = None) -> PlainRow:
        """Some of a row's values, or all, by their names."""
        chosen = range(len(self.names)) if positions is None else positions
        return {self.names[at]: to_plain(row[at], self.types[at]) for at in chosen}


def difference(columns: Columns, expected: Sequence[Row], got: Sequence[Row]) -> Difference:
    """Compare rows as a table has them: in no order, each as often as it is there.

    Rows that are expected and not there are paired with others that are there and not expected, so that a person sees what
    changed; whether there is a difference does not hang on that.
    """
    missing = _left_over(columns, expected, got)
    extra = _left_over(columns, got, expected)
    pairs = _by_key(columns, missing, extra) if columns.key else _by_likeness(columns, missing, extra)
    paired_missing = {first for first, _ in pairs}
    paired_extra = {second for _, second in pairs}
    return Difference(
        tuple(columns.plain(row) for at, row in enumerate(missing) if at not in paired_missing),
        tuple(columns.plain(row) for at, row in enumerate(extra) if at not in paired_extra),
        tuple(_changed(columns, missing[first], extra[second]) for first, second in pairs),
    )


def _left_over(columns: Columns, rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The rows that the others do not have, or not as often, in their order."""
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
    """Pairs of rows with the same key, which is there once on either side."""
    key_at = [columns.names.index(name) for name in columns.key]

    def places(rows: Sequence[Row]) -> dict[Row, list[int]]:
        by_key: dict[Row, list[int]] = {}
        for at, row in enumerate(map(columns.comparable, rows)):
            by_key.setdefault(tuple(row[position] for position in key_at), []).append(at)
        return by_key

    found = places(extra)
    return [(at[0], found[key][0]) for key, at in places(missing).items() if len(at) == 1 and len(found.get(key, ())) == 1]


def _by_likeness(columns: Columns, missing: Sequence[Row], extra: Sequence[Row]) -> list[tuple[int, int]]:
    """Pairs of rows of which more than half of the values are alike, in order of the first ones."""
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
