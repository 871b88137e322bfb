"""Expectations of a table's rows, and the results of checking them.

The job imports this module, so it depends on the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.core.identifiers import literal, quote
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.types import are_comparable


class Action(StrEnum):
    """The effect of violated expectations on a refresh."""

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Relationship:
    """A reference of ``columns`` to a row of the table ``to``, a full name, with the same values in ``to_columns``."""

    columns: tuple[str, ...]
    to: str
    to_columns: tuple[str, ...]

    def type_problem(self, types: Mapping[str, str | None], to_types: Mapping[str, str | None]) -> tuple[int, str] | None:
        """Return the first column whose values cannot be compared, by its index, and why; ``None`` if there is none.

        :param types: the types of the columns of the rows, in lower case, as far as they are known; ``to_types`` those of the
            other table.
        """
        for number, (column, to_column) in enumerate(zip(self.columns, self.to_columns, strict=True)):
            kind, to_kind = types.get(column.lower()), to_types.get(to_column.lower())
            if kind is not None and to_kind is not None and not are_comparable(kind, to_kind):
                return number, f"{column!r} is {kind}, and {to_column!r} of {self.to} is {to_kind}; CAST it in the query"
        return None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition for every row: a ``predicate`` (Spark SQL) that is not false, ``unique`` columns, or a ``relationship``.

    As in SQL constraints, a predicate that is NULL is not violated, rows with a NULL among the unique columns are never
    duplicates, and rows with a NULL among the columns of a relationship need no other row. Duplicates are looked for among the
    rows of one refresh or, ``across_partitions``, also among those of the partitions that the refresh does not replace.
    """

    name: str
    action: Action = Action.FAIL
    predicate: str | None = None
    unique: tuple[str, ...] = ()
    across_partitions: bool = False
    relationship: Relationship | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return plain data; a later field has none by default, so that digests and catalog entries stay the same."""
        plain = {"name": self.name, "action": self.action.value, "predicate": self.predicate, "unique": list(self.unique)}
        across = {"across_partitions": True} if self.across_partitions else {}
        return {**plain, **across, **({"relationship": to_plain(self.relationship)} if self.relationship is not None else {})}

    def compares_with(self, table: str) -> bool:
        """Return whether rows of a table are compared with other rows of the same table.

        :param table: its full name.
        """
        return self.across_partitions or (self.relationship is not None and self.relationship.to == table)


@dataclass(frozen=True, slots=True)
class RowCount:
    """Limits of the rows that a refresh writes.

    ``max_decrease`` and ``max_increase`` are fractions of the rows it replaces (0.5: half).
    """

    name: str = "row_count"
    action: Action = Action.QUARANTINE
    min: int | None = None
    max: int | None = None
    max_decrease: float | None = None
    max_increase: float | None = None

    @property
    def compares(self) -> bool:
        """Return whether the check depends on the previous version."""
        return self.max_decrease is not None or self.max_increase is not None

    def check(self, rows: int, before: int | None, *, is_average: bool = False) -> ExpectationResult:
        """Check the number of rows written.

        :param before: the number of rows replaced; with ``None`` or 0 there is nothing to compare with.
        :param is_average: whether ``before`` counts partitions that the table did not have as average ones.
        """
        change = (rows - before) / before if before else 0.0
        average = ", where each new partition counts as an average one" if is_average else ""
        counted = f"{rows} rows, {before} before ({change:+.0%}){average}" if self.compares and before else f"{rows} rows"
        bounds = {
            f"at least {self.min} expected": self.min is not None and rows < self.min,
            f"at most {self.max} expected": self.max is not None and rows > self.max,
            f"at least {-(self.max_decrease or 0):+.0%} expected": self.max_decrease is not None and change < -self.max_decrease,
            f"at most {self.max_increase or 0:+.0%} expected": self.max_increase is not None and change > self.max_increase,
        }

        wrong = [bound for bound, violated in bounds.items() if violated]
        return ExpectationResult(self.name, self.action, min(len(wrong), 1), "; ".join([counted, *wrong]))


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The result of one expectation: ``violations`` is the number of violating rows; for a row count it is 0 or 1.

    With the action ``drop``, violating rows were left out; otherwise they are in the stage. ``detail`` describes the row count or
    the late rows.
    """

    name: str
    action: str
    violations: int
    detail: str | None = None

    def __str__(self) -> str:
        if self.detail is not None:
            return f"{self.name}: {self.detail}"
        left_out = " and were left out" if self.action == Action.DROP else ""
        return f"{self.name}: {self.violations} rows violate it{left_out}"


def late_rows(number: int) -> ExpectationResult:
    """The implicit expectation that rows of a source with a delay arrive in time; a stream drops those that do not.

    :param number: the number of late rows as counted by Spark, after partial aggregation.
    """
    detail = (
        f"{number} late rows were left out, because the watermark of a source was beyond them; give it a longer delay, and a new "
        "stream counts them in"
    )
    return ExpectationResult("late_rows", Action.DROP, number, detail)


def not_null(columns: Sequence[str]) -> str:
    """A predicate that none of the columns is NULL."""
    return " AND ".join(f"{quote(column)} IS NOT NULL" for column in columns)


def accepted_values(columns: Mapping[str, Sequence[str]]) -> str:
    """A predicate that each column has one of its values, or is NULL."""
    return " AND ".join(f"{quote(column)} IN ({', '.join(map(literal, values))})" for column, values in columns.items())
