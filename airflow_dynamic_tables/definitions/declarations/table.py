"""The declarations of dynamic tables and of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from airflow_dynamic_tables.core.partitioning import rejoined, spelled
from airflow_dynamic_tables.definitions.declarations.airflow import declaration_of_keys
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name
from airflow_dynamic_tables.definitions.declarations.expectations import ExpectationDeclaration
from airflow_dynamic_tables.definitions.declarations.settings import Settings


@dataclass(frozen=True, slots=True)
class AssetItem:
    """One asset as it is written: a URI, the name of a table or source, or, when ``is_name``, Airflow's name of the asset."""

    text: str
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class OnDeclaration:
    """The assets whose updates refresh a table: each of them, or all together when ``every``."""

    items: tuple[AssetItem, ...]
    every: bool = False

    def located(self) -> Iterator[tuple[tuple[str | int, ...], AssetItem]]:
        """The items, and where each stands below ``on``."""
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
"""How many rows a refresh may await; more are a slip of the keyboard."""


class AwaitedDeclaration(Declaration):
    """What has to be there before a refresh: a file or folder, a partition of a table whose metastore lists them, or rows."""

    path: Name | None = None
    """Path or URI, e.g. `s3://lake/raw/{yyyy-MM-dd}/_SUCCESS`; relative to this file."""
    source: Name | None = None
    """A source whose metastore lists its partitions, or whose rows can be counted."""
    partition: Name | None = None
    """The partition of that source, e.g. `ds={yyyy-MM-dd}`."""
    rows: int | None = Field(default=None, ge=1, le=_MOST_ROWS)
    """How many rows that source, or that partition of it, must have at least; of `parquet`, `orc` and `jdbc` sources."""

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
    """A dynamic table: its content is its query, never older than its freshness."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    query: Name | None = None
    """The SELECT (Spark SQL) whose result is the table."""
    query_file: Name | None = None
    """File with the query instead, relative to this file and below its folder."""
    comment: str | None = None
    """What the table is, for readers."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys: columns that the query returns; of Iceberg tables also `day(ts)`, `bucket(16, id)` and the like."""
    columns: dict[Name, str] = Field(default_factory=dict)
    """Comments of columns, by column name."""
    expectations: tuple[ExpectationDeclaration, ...] = ()
    """What is expected of the rows, checked before every commit."""
    on: On | None = None
    """Assets whose updates refresh the table, beside its schedule: URIs, tables, sources; any of them, or `{all: […]}`."""
    wait_for: tuple[AwaitedDeclaration, ...] = ()
    """What has to be there before a refresh."""

    @model_validator(mode="after")
    def _check_query(self) -> TableDeclaration:
        if (self.query is None) == (self.query_file is None):
            raise ValueError("a dynamic table needs either 'query' or 'query_file'")
        return self

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition keys in their one spelling; one that means nothing is left as it is."""
        keys = []
        for _, key in rejoined(self.partitioned_by):
            with suppress(ValueError):
                key = spelled(key)
            keys.append(key)
        return tuple(keys)


class ViewDeclaration(Declaration):
    """A named query that expands inside the queries that read it."""

    name: Name
    """Name: `view`, `database.view` or `catalog.database.view`."""
    query: Name
    """The SELECT (Spark SQL)."""
    comment: str | None = None
    """What the view is, for readers."""
