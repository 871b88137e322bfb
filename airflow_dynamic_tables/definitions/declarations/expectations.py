"""``expectations`` of a table: what may stand there, and the values it means; and ``tests``, which expect rows of its query."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, RowCount, accepted_values, not_null
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, Scalar

ACTIONS = {
    "not_null": (Action.WARN, Action.DROP, Action.FAIL),
    "unique": (Action.WARN, Action.FAIL),
    "accepted_values": (Action.WARN, Action.DROP, Action.FAIL),
    "predicate": (Action.WARN, Action.DROP, Action.FAIL),
    "row_count": (Action.WARN, Action.FAIL, Action.QUARANTINE),
}
"""The kinds of expectations, and what may become of a refresh that violates one."""

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_NAMED = 60


def _share(value: object) -> object:
    match = _PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no percentage; write for example 50%")
    return float(match[1]) / 100


Share = Annotated[float, BeforeValidator(_share), WithJsonSchema({"type": "string", "examples": ["50%"]}, mode="validation")]
_Columns = Annotated[tuple[Name, ...], Field(min_length=1)]
_Values = Annotated[tuple[Scalar, ...], Field(min_length=1)]


class RowCountDeclaration(Declaration):
    """How many rows a refresh may write; the changes are measured against the rows it replaces."""

    min: int | None = Field(default=None, ge=0)
    """At least so many."""
    max: int | None = Field(default=None, ge=0)
    """At most so many."""
    max_decrease: Share | None = None
    """How much fewer than in the last version, e.g. `50%`."""
    max_increase: Share | None = None
    """How much more than in the last version, e.g. `300%`."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("row_count needs at least one of 'min', 'max', 'max_decrease' and 'max_increase'")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"'min' {self.min} is more than 'max' {self.max}")
        if self.max_decrease is not None and self.max_decrease >= 1:
            raise ValueError("a 'max_decrease' of 100% or more allows everything; write less")
        return self


class ExpectationDeclaration(Declaration):
    """One expectation: exactly one of `not_null`, `unique`, `accepted_values`, `predicate` and `row_count`."""

    name: Name | None = None
    """What it is called in the history; default: what it says."""
    action: Annotated[Name, Field(json_schema_extra={"enum": [action.value for action in Action]})] | None = None
    """`warn` records violations, `drop` leaves their rows out, `fail` (the default) commits nothing; a row count may also, and
    does by default, put the stage into `quarantine`."""
    not_null: _Columns | None = None
    """Columns without nulls."""
    unique: _Columns | None = None
    """Columns that no two rows share; rows with a null in one of them share nothing."""
    accepted_values: Annotated[dict[Name, _Values], Field(min_length=1)] | None = None
    """Columns and the values they may have; null is always accepted."""
    predicate: Name | None = None
    """Spark SQL over the columns of one row, which must not be false; null is not false."""
    row_count: RowCountDeclaration | None = None
    """How many rows a refresh may write."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if len(self.model_fields_set & set(ACTIONS)) != 1:
            raise ValueError(f"an expectation is exactly one of {', '.join(ACTIONS)}")
        return self

    @property
    def kind(self) -> str:
        """Which one of the five it is."""
        return next(kind for kind in ACTIONS if kind in self.model_fields_set)

    @property
    def full_name(self) -> str:
        """The name it was given, or what it says."""
        columns = self.not_null or self.unique or tuple(self.accepted_values or ())
        said = self.predicate or (f"{self.kind}({', '.join(columns)})" if columns else self.kind)
        shortened = " ".join(said.split())
        return self.name or (shortened if len(shortened) <= _NAMED else f"{shortened[:_NAMED]}…")

    @property
    def predicate_sql(self) -> str | None:
        """What must not be false of any row, if that is what it says."""
        if self.not_null:
            return not_null(self.not_null)
        return accepted_values(self.accepted_values) if self.accepted_values else self.predicate


def build_expectations(declared: tuple[ExpectationDeclaration, ...]) -> tuple[Expectation, ...]:
    """Those that the job checks."""
    return tuple(
        Expectation(item.full_name, Action(item.action or Action.FAIL), item.predicate_sql, item.unique or ())
        for item in declared
        if item.row_count is None
    )


def build_row_counts(declared: tuple[ExpectationDeclaration, ...]) -> tuple[RowCount, ...]:
    """Those that the worker checks."""
    return tuple(
        RowCount(item.full_name, Action(item.action or Action.QUARANTINE), **item.row_count.model_dump())
        for item in declared
        if item.row_count is not None
    )


class RowsDeclaration(Declaration):
    """Rows of a table, in one of three ways: `rows`, `csv` or `sql`."""

    rows: tuple[dict[Name, Any], ...] | None = None
    """A list of mappings from columns to values; a column that is left out is NULL."""
    csv: Name | None = None
    """Text with commas: a line of column names, then one for each row; nothing between two commas is NULL."""
    sql: Name | None = None
    """A SELECT that reads no table."""

    @model_validator(mode="after")
    def _check_way(self) -> Self:
        if [self.rows, self.csv, self.sql].count(None) != 2:
            raise ValueError("rows are given in one way: as 'rows', 'csv' or 'sql'")
        return self


class GivenDeclaration(RowsDeclaration):
    """The rows that a table has in a test."""

    columns: dict[Name, Name] = Field(default_factory=dict)
    """Types of columns as Spark DDL, where the source declares none, e.g. `{amount: "DECIMAL(10,2)"}`."""


class ExpectDeclaration(RowsDeclaration):
    """The rows that the query returns in a test."""

    key: tuple[Name, ...] = ()
    """Columns by which an expected row is found among those that the query returned, to show what is different."""
    only: tuple[Name, ...] = ()
    """The columns that are compared; default: all."""
    types: dict[Name, Name] = Field(default_factory=dict)
    """The types of columns, as Spark writes them: `revenue: DECIMAL(12,2)`; default: whatever the query returns."""


class QueryTestDeclaration(Declaration):
    """A unit test: what the query of a table returns when the tables that it reads have these rows."""

    table: Name
    """The dynamic table: `table`, `database.table` or `catalog.database.table`."""
    name: Name
    """What the test shows."""
    schedule_time: Name | None = None
    """The tick of the refresh that is played, which decides its partitions; default: the whole table."""
    partition: Name | None = None
    """The partitions that are refreshed, e.g. `ds=2024-01-01`; several with commas between."""
    given: dict[Name, GivenDeclaration] = Field(default_factory=dict)
    """The rows of every table that the query reads."""
    expect: ExpectDeclaration
    """The rows that the table then has."""
