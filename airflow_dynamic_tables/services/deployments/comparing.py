"""Comparing a declared table with the deployed one: what is different, and what of it decides the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import unified_diff
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.tables.schema import Column, Rebuild, TableLayout
from airflow_dynamic_tables.definitions.model import KEYS, Decides, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import analyse, same_query
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.services.deployments.values import Change, ColumnChange, FieldChange
from airflow_dynamic_tables.services.tables.entries import altered, declared_part

_UNKNOWN = "of a type that Spark decides"
"""Type of a column that only Spark can tell."""

THE_QUERY = "the query"
"""How people are told that it changed."""

_DECIDING = {
    "timezone": "the time zone",
    "partitioned_by": "the partition keys",
    "partition_keys": "the partition keys",
    "format": "the format",
}
_DECIDING |= {each.name: repr(each.name) for each in KEYS if each.key.decides is Decides.ROWS and each.name not in _DECIDING}
"""The keys that decide the rows, and fields of the catalog's entry that do, in people's words."""

_AS_IN_TABLES = {"tinyint": "int", "smallint": "int"}
"""What tables make of types that not every format has."""


def changed_fields(entry: CatalogDynamicTable, table: DynamicTable) -> tuple[FieldChange, ...]:
    """What a definition says otherwise than the deployed one, and what others have changed in the catalog's entry."""
    wanted = altered(entry, table)
    if wanted == entry:
        return ()
    deployed, declared = _flat(declared_part(entry)), _flat(declared_part(wanted))
    names = sorted(deployed.keys() | declared.keys())
    changed = tuple(
        FieldChange(name, deployed.get(name), declared.get(name)) for name in names if deployed.get(name) != declared.get(name)
    )
    return changed or tuple(_changed_by_others(entry, wanted))


def _flat(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with what other definitions decide as fields of their own."""
    own = {name: value for name, value in definition.items() if name != "resolved"}
    return {**own, **{f"resolved.{name}": value for name, value in definition.get("resolved", {}).items()}}


def _changed_by_others(entry: CatalogDynamicTable, wanted: CatalogDynamicTable) -> Iterator[FieldChange]:
    for name in (field.name for field in fields(entry)):
        is_, shall = getattr(entry, name), getattr(wanted, name)
        if is_ != shall:
            yield FieldChange(name, is_, shall)


def other_rows(entry: CatalogDynamicTable, table: DynamicTable, changed: tuple[FieldChange, ...]) -> tuple[str, ...]:
    """What of the changes decides which rows the table has, in people's words."""
    by_name = {change.name: change for change in changed}
    told: list[str] = []
    if not same_query(entry.expanded_query, table.expanded_query):
        told.append(THE_QUERY)
    told += [words for name, words in _DECIDING.items() if name in by_name]
    if "spark" in by_name and _deciding(by_name["spark"].deployed) != _deciding(by_name["spark"].declared):
        told.append("settings of Spark that decide what the query means")
    if "expectations" in by_name and _dropping(by_name["expectations"].deployed) != _dropping(by_name["expectations"].declared):
        told.append("expectations that drop rows")
    return tuple(told)


def _deciding(spark: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (spark or {}).get("conf", {}).items() if decides_rows(name)}


def _dropping(expectations: list[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [one for one in expectations or [] if one.get("action") == Action.DROP.value]


def query_difference(entry: CatalogDynamicTable, table: DynamicTable) -> str:
    """How the text of a query differs, line by line; of what it means in full, when only a view that it reads has changed."""
    before, now = entry.original_query, table.query
    if before == now:
        before, now = entry.expanded_query, table.expanded_query
    lines = unified_diff(before.splitlines(), now.splitlines(), "deployed", "declared", lineterm="")
    return "\n".join(lines)


def fitted(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> tuple[Change, str | None]:
    """Whether the rows of a query fit a table, and why not; as far as texts tell of columns."""
    try:
        layout.check_keys(table.identifier, table.partition_keys)
        if (returned := _returned(layout, entry, table)) is not None:
            layout.evolved(returned)
    except SchemaEvolutionError as error:
        return Change.REBUILD, str(error)
    if returned is None:
        return Change.DATA, "the rows change, and only Spark can tell in which columns"
    return (Change.COLUMNS if len(returned) > len(layout.columns) else Change.DATA), None


def column_changes(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> tuple[ColumnChange, ...]:
    """Columns that are there now and will not be, or the other way round, or with another type."""
    returned = _returned(layout, entry, table)
    if returned is None:
        return ()
    before = {column.name: column.type for column in layout.columns}
    now = {column.name: column.type for column in returned}
    return tuple(
        ColumnChange(name, before.get(name), now.get(name)) for name in (before | now) if before.get(name) != now.get(name)
    )


def can_be_made_anew(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> bool:
    """Whether a full refresh can make the declared table of a table in one step, as far as that is known without Spark."""
    if entry.format != table.format or layout.rebuild is Rebuild.NOTHING:
        return False
    return layout.rebuild is Rebuild.EVERYTHING or layout.partition_keys == table.partition_keys


def _returned(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> list[Column] | None:
    """The columns that a query returns, with the types of those that the table has; ``None`` when its text does not name all."""
    analysis = analyse(table.expanded_query)
    names = [name for name in analysis.outputs or () if name is not None]
    if not names or len(names) != len(analysis.outputs or ()) or len(names) != len({name.lower() for name in names}):
        return None
    present = {column.name.lower(): column for column in layout.columns}
    earlier = _types(entry.expanded_query)
    types = analysis.types or (None,) * len(names)
    return [
        _column(name, kind, present.get(name.lower()), earlier.get(name.lower())) for name, kind in zip(names, types, strict=True)
    ]


def _types(query: str) -> dict[str, str]:
    """The types that the text of a query tells, by the names of columns in lower case."""
    analysis = analyse(query)
    pairs = zip(analysis.outputs or (), analysis.types or (), strict=False)
    return {name.lower(): kind for name, kind in pairs if name is not None and kind is not None}


def _column(name: str, kind: str | None, present: Column | None, earlier: str | None) -> Column:
    if present is None:
        return Column(name, kind or _UNKNOWN)
    if kind in (None, earlier) or _AS_IN_TABLES.get(kind, kind) == _AS_IN_TABLES.get(present.type, present.type):
        return present
    return Column(present.name, kind, comment=present.comment)
