"""Declarations of dynamic tables and views, their expectations, awaited data and unit tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_transforms import rejoined, spelled
from airflow_dynamic_tables.core.refresh.expectations import (
    Action,
    Expectation,
    Relationship,
    RowCount,
    accepted_values,
    not_null,
)
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.definitions.declarations.airflow import Duration, Truth, declaration_of_keys
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, OneOf, Scalar
from airflow_dynamic_tables.definitions.declarations.settings import Settings

ACTIONS = {
    "not_null": (Action.WARN, Action.DROP, Action.FAIL),
    "unique": (Action.WARN, Action.FAIL),
    "relationship": (Action.WARN, Action.FAIL),
    "accepted_values": (Action.WARN, Action.DROP, Action.FAIL),
    "predicate": (Action.WARN, Action.DROP, Action.FAIL),
    "row_count": (Action.WARN, Action.FAIL, Action.QUARANTINE),
}
"""Kinds of expectations, and the actions each allows on a violation."""

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_NAMED = 60

_TO = ("to", "to_columns")
"""Keys of a relationship."""


def _share(value: object) -> object:
    match = _PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no percentage; write for example 50%")
    return float(match[1]) / 100


Share = Annotated[float, BeforeValidator(_share), WithJsonSchema({"type": "string", "examples": ["50%"]}, mode="validation")]
_Columns = Annotated[tuple[Name, ...], Field(min_length=1)]
_Values = Annotated[tuple[Scalar, ...], Field(min_length=1)]


class RowCountDeclaration(Declaration):
    """Limits of the number of rows that a refresh writes; changes are relative to the rows it replaces."""

    min: int | None = Field(default=None, ge=0)
    """Minimum number of rows."""
    max: int | None = Field(default=None, ge=0)
    """Maximum number of rows."""
    max_decrease: Share | None = None
    """Maximum decrease from the previous version, e.g. `50%`."""
    max_increase: Share | None = None
    """Maximum increase from the previous version, e.g. `300%`."""

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
    """One expectation: exactly one of `not_null`, `unique`, `relationship`, `accepted_values`, `predicate` and `row_count`."""

    name: Name | None = None
    """Name in the history; default: its content."""
    action: Annotated[Name, Field(json_schema_extra={"enum": [action.value for action in Action]})] | None = None
    """`warn` records violations, `drop` removes the violating rows, `fail` (the default) does not commit; a row count may also,
    and does by default, put the stage into `quarantine`."""
    not_null: _Columns | None = None
    """Columns without nulls."""
    unique: _Columns | None = None
    """Columns whose values are unique; rows with a null in one of them are not compared."""
    across_partitions: Truth = False
    """Whether `unique` also compares with the rows of the partitions that a refresh does not replace."""
    relationship: _Columns | None = None
    """Columns whose values are those of a row of another table; rows with a null in one of them need none."""
    to: Name | None = None
    """The other table of a `relationship`: a dynamic table or a source."""
    to_columns: _Columns | None = None
    """The columns of the other table, in the order of `relationship`; default: those of the same names."""
    accepted_values: Annotated[dict[Name, _Values], Field(min_length=1)] | None = None
    """Columns and their accepted values; null is always accepted."""
    predicate: Name | None = None
    """Spark SQL condition on the columns of one row, which must not be false; null is not false."""
    row_count: RowCountDeclaration | None = None
    """Limits of the number of rows that a refresh writes."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if len(self.model_fields_set & set(ACTIONS)) != 1:
            raise ValueError(f"an expectation is exactly one of {', '.join(ACTIONS)}")
        if self.relationship is None and (of_relationship := next(filter(self.model_fields_set.__contains__, _TO), None)):
            raise ValueError(f"{of_relationship!r} belongs to a 'relationship', not to {self.kind!r}; take it away")
        if self.relationship is not None and self.to is None:
            raise ValueError("a relationship needs 'to', the table that has the rows")
        if self.relationship is not None and len(self.relationship) != len(self.referenced):
            numbers = f"'relationship' names {len(self.relationship)}, and 'to_columns' {len(self.referenced)}"
            raise ValueError(f"the numbers of columns differ: {numbers}; name one for each")
        return self

    @property
    def kind(self) -> str:
        """Which of the kinds it is."""
        return next(kind for kind in ACTIONS if kind in self.model_fields_set)

    @property
    def referenced(self) -> tuple[str, ...]:
        """The columns of the other table of a relationship."""
        return self.to_columns or self.relationship or ()

    @property
    def full_name(self) -> str:
        """Its name, or else its content."""
        columns = self.not_null or self.unique or self.relationship or tuple(self.accepted_values or ())
        said = self.predicate or (f"{self.kind}({', '.join(columns)})" if columns else self.kind)
        if self.across_partitions:
            said = f"{said} across partitions"
        if self.relationship:
            said = f"{said} to {self.to}"
        shortened = " ".join(said.split())
        return self.name or (shortened if len(shortened) <= _NAMED else f"{shortened[:_NAMED]}…")

    @property
    def predicate_sql(self) -> str | None:
        """The predicate that must not be false for any row, if the expectation has one."""
        if self.not_null:
            return not_null(self.not_null)
        return accepted_values(self.accepted_values) if self.accepted_values else self.predicate


def build_expectations(
    declared: tuple[ExpectationDeclaration, ...], named: Callable[[str], TableIdentifier]
) -> tuple[Expectation, ...]:
    """Return the expectations that the job checks.

    :param named: resolves the name of a table.
    """
    return tuple(
        Expectation(
            item.full_name,
            Action(item.action or Action.FAIL),
            item.predicate_sql,
            item.unique or (),
            item.across_partitions,
            Relationship(item.relationship, str(named(item.to or "")), item.referenced) if item.relationship else None,
        )
        for item in declared
        if item.row_count is None
    )


def build_row_counts(declared: tuple[ExpectationDeclaration, ...]) -> tuple[RowCount, ...]:
    """Return the expectations that the worker checks."""
    return tuple(
        RowCount(item.full_name, Action(item.action or Action.QUARANTINE), **item.row_count.model_dump())
        for item in declared
        if item.row_count is not None
    )


class RowsDeclaration(Declaration):
    """Rows of a table, in one of three forms: `rows`, `csv` or `sql`."""

    rows: tuple[dict[Name, Any], ...] | None = None
    """A list of mappings from columns to values; omitted columns are NULL."""
    csv: Name | None = None
    """CSV text: a header line with column names, then one line per row; an empty field is NULL."""
    sql: Name | None = None
    """A SELECT that reads no table."""

    @model_validator(mode="after")
    def _check_way(self) -> Self:
        if [self.rows, self.csv, self.sql].count(None) != 2:
            raise ValueError("rows are given in one way: as 'rows', 'csv' or 'sql'")
        return self


class GivenDeclaration(RowsDeclaration):
    """Input rows of a table in a test."""

    columns: dict[Name, Name] = Field(default_factory=dict)
    """Types of columns as Spark DDL, where the source declares none, e.g. `{amount: "DECIMAL(10,2)"}`."""


class ExpectDeclaration(RowsDeclaration):
    """Expected result of the query in a test."""

    key: tuple[Name, ...] = ()
    """Columns by which expected and returned rows are matched, to show their differences."""
    only: tuple[Name, ...] = ()
    """The columns to compare; default: all."""
    types: dict[Name, Name] = Field(default_factory=dict)
    """Expected types of columns in Spark syntax: `revenue: DECIMAL(12,2)`; default: any type."""


class QueryTestDeclaration(Declaration):
    """A unit test: the result of the query of a table for given rows of the tables that it reads."""

    table: Name
    """The dynamic table: `table`, `database.table` or `catalog.database.table`."""
    name: Name
    """What the test verifies."""
    schedule_time: Name | None = None
    """Tick of the simulated refresh, which determines its partitions; default: the complete table."""
    partition: Name | None = None
    """Partitions to refresh, e.g. `ds=2024-01-01`; several are separated by commas."""
    given: dict[Name, GivenDeclaration] = Field(default_factory=dict)
    """Rows of every table that the query reads."""
    expect: ExpectDeclaration
    """Expected rows of the table."""


@dataclass(frozen=True, slots=True)
class AssetItem:
    """An asset as written: a URI, the name of a table or source, or, with ``is_name``, Airflow's name of the asset."""

    text: str
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class OnDeclaration:
    """Assets whose updates refresh a table: any of them or, with ``every``, all of them."""

    items: tuple[AssetItem, ...]
    every: bool = False

    def located(self) -> Iterator[tuple[tuple[str | int, ...], AssetItem]]:
        """Yield the items, and the location of each below ``on``."""
        above = ("all",) if self.every else ()
        return (((*above, number), item) for number, item in enumerate(self.items))


def _on(value: object) -> OnDeclaration:
    every = isinstance(value, Mapping) and set(value) == {"all"}
    items = value["all"] if isinstance(value, Mapping) and every else value
    if not isinstance(items, list):
        raise ValueError("'on' is a list of assets, or {all: […]} to wait until every one was updated")
    if not items:
        raise ValueError("'on' must not be empty; name an asset, or remove the key")
    return OnDeclaration(tuple(map(_item, items)), every)


def _item(item: object) -> AssetItem:
    if isinstance(item, Mapping) and set(item) == {"name"} and isinstance(item["name"], str) and item["name"].strip():
        return AssetItem(item["name"], is_name=True)
    if isinstance(item, str) and item.strip():
        return AssetItem(item)
    raise ValueError("an asset is a URI, the name of a table or source, or {name: …} for an asset of Airflow that has no URI")


_ASSETS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            {"type": "string", "examples": ["s3://bucket/orders", "lake.sales.daily_revenue"]},
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False},
        ]
    },
}

_ALL_ASSETS = {"type": "object", "properties": {"all": _ASSETS}, "required": ["all"], "additionalProperties": False}

On = Annotated[OnDeclaration, BeforeValidator(_on), WithJsonSchema({"anyOf": [_ASSETS, _ALL_ASSETS]}, mode="validation")]
"""Assets whose updates refresh a table."""


_MOST_ROWS = 10**12
"""Maximum number of awaited rows; more is a typing error."""


class AwaitedDeclaration(Declaration):
    """Data that a refresh waits for: a file or folder, a partition of a table whose metastore lists them, or rows."""

    path: Name | None = None
    """Path or URI, e.g. `s3://lake/raw/{yyyy-MM-dd}/_SUCCESS`; relative to this file."""
    source: Name | None = None
    """A source whose metastore lists its partitions, or whose rows can be counted."""
    partition: Name | None = None
    """The partition of that source, e.g. `ds={yyyy-MM-dd}`."""
    rows: int | None = Field(default=None, ge=1, le=_MOST_ROWS)
    """Minimum number of rows of that source or partition; for `parquet`, `orc` and `jdbc` sources."""

    @model_validator(mode="after")
    def _check_kind(self) -> AwaitedDeclaration:
        if self.rows is None and "rows" in self.model_fields_set:
            raise ValueError("'rows' has no value; give one or remove the key")
        of_source = self.partition is not None or self.rows is not None
        if (self.path is None) == (self.source is None) or (self.source is not None) != of_source:
            raise ValueError("what is awaited is {path: …}, or {source: …} with a partition, rows: 1000, or both")
        return self


if TYPE_CHECKING:
    _TableKeys = Declaration
else:
    _TableKeys = declaration_of_keys(in_defaults=False)


class TableDeclaration(Settings, _TableKeys, defer_build=False):
    """A dynamic table: its content is the result of its query, never older than its freshness."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    query: Name | None = None
    """The SELECT (Spark SQL) whose result is the table."""
    query_file: Name | None = None
    """File with the query in place of `query`, relative to this file and below its folder."""
    comment: str | None = None
    """Description of the table."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys: columns that the query returns; for Iceberg tables also `day(ts)`, `bucket(16, id)` and the like."""
    columns: dict[Name, str] = Field(default_factory=dict)
    """Comments of columns, by column name."""
    expectations: tuple[ExpectationDeclaration, ...] = ()
    """Expectations on the rows, checked before every commit."""
    on: On | None = None
    """Assets whose updates refresh the table in addition to its schedule: URIs, tables, sources; any of them, or `{all: […]}`."""
    wait_for: tuple[AwaitedDeclaration, ...] = ()
    """Data that a refresh waits for."""
    on_change: dict[Name, Annotated[str, OneOf("on_change", tuple(OnChange))]] = Field(default_factory=dict)
    """By source: whether its changes make older partitions out of date (`refresh`, the default), only those with keys of changed
    rows (`affected`), or none (`ignore`)."""
    max_lag: dict[Name, Duration] = Field(default_factory=dict)
    """By dynamic table that the query reads: how far it may be behind the schedule time of a refresh, e.g. `2 hours`."""

    @model_validator(mode="after")
    def _check_query(self) -> TableDeclaration:
        if (self.query is None) == (self.query_file is None):
            raise ValueError("a dynamic table needs either 'query' or 'query_file'")
        return self

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition keys in canonical form; invalid keys are unchanged."""
        keys = []
        for _, key in rejoined(self.partitioned_by):
            with suppress(ValueError):
                key = spelled(key)
            keys.append(key)
        return tuple(keys)


class ViewDeclaration(Declaration):
    """A named query that is expanded inside the queries that read it."""

    name: Name
    """Name: `view`, `database.view` or `catalog.database.view`."""
    query: Name
    """The SELECT (Spark SQL)."""
    comment: str | None = None
    """Description of the view."""
