"""Reads from Iceberg metadata what overrides a catalog entry: columns, partitions, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.iceberg.revisions import data_files, has_delete_files, key_columns, partition
from airflow_dynamic_tables.clients.iceberg.schemas import columns_of
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.schema import Column


def as_stored(entry: AnyTable | None, physical: Table, version: str | None) -> AnyTable | None:
    """Return the entry updated from the physical table, as of a version; ``None`` when there is no such version.

    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    as_of = _columns_as_of(physical, version)
    if as_of is None:
        return None
    columns, snapshot = as_of
    if isinstance(entry, CatalogDynamicTable):
        # Until a full refresh recreates the table, its partitioning is unchanged, whatever its definition states.
        keys = tuple(key_columns(physical.spec(), physical.schema()).values()) if columns else entry.partition_keys
        return replace(entry, columns=columns, partition_keys=keys, location=physical.location(), snapshot=snapshot)
    if isinstance(entry, CatalogTable):
        keys = tuple(key_columns(physical.spec(), physical.schema()).values()) if columns else entry.partition_keys
        comment = physical.properties.get("comment", entry.comment)
        return replace(entry, columns=columns, partition_keys=keys, comment=comment, location=physical.location())
    return replace(table_of(physical), columns=columns)


def table_of(physical: Table) -> CatalogTable:
    """Return a table that only Iceberg knows.

    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    return CatalogTable(
        columns_of(physical.schema()),
        comment=physical.properties.get("comment"),
        partition_keys=tuple(key_columns(physical.spec(), physical.schema()).values()),
        location=physical.location(),
        properties=dict(physical.properties),
    )


def _columns_as_of(table: Table, version: str | None) -> tuple[tuple[Column, ...], str | None] | None:
    """Return columns and snapshot of a version, by default the current one; ``None`` when there is no such version."""
    snapshots = {str(snapshot.snapshot_id): snapshot for snapshot in table.snapshots()}
    if version is None:
        current = table.current_snapshot()
        return columns_of(table.schema()), str(current.snapshot_id) if current else None
    if version not in snapshots:
        return None
    schema_id = snapshots[version].schema_id
    return columns_of(table.schema() if schema_id is None else table.schemas()[schema_id]), version


def partitions_of(table: Table, keys: tuple[str, ...], wanted: Mapping[str, str]) -> list[CatalogPartition]:
    """Return the partitions that contain files and match ``wanted``, ordered by their values."""
    schema = table.schema()
    uncounted = has_delete_files(table)
    columns = {number: key_columns(spec, schema) for number, spec in table.specs().items()}
    files_by_values: dict[tuple[str, ...], list[DataFile]] = {}
    for file, spec in data_files(table):
        values = partition(file, spec, schema)
        named = {column: values[field] for field, column in columns[spec.spec_id].items()}
        full = {key: NULL_PARTITION if (value := named.get(key)) is None else value for key in keys}
        if wanted.items() <= full.items():
            files_by_values.setdefault(tuple(full.values()), []).append(file)
    return [
        CatalogPartition(dict(zip(keys, values, strict=True)), statistics=_size(files, uncounted=uncounted))
        for values, files in sorted(files_by_values.items())
    ]


def statistics_of(table: Table) -> TableStatistics:
    """Return the size of the current version; the number of rows is unknown when there are delete files."""
    return _size([file for file, _ in data_files(table)], uncounted=has_delete_files(table))


def _size(files: list[DataFile], *, uncounted: bool) -> TableStatistics:
    rows = None if uncounted else sum(file.record_count for file in files)
    return TableStatistics(rows, sum(file.file_size_in_bytes for file in files), len(files))


def column_statistics_of(table: Table) -> dict[str, ColumnStatistics]:
    """Return nulls, minimum and maximum of the columns for which every file has them in the metadata of the commit.

    Iceberg truncates long strings, so that minimum and maximum of such columns are bounds and may not be actual values.
    """
    files = [file for file, _ in data_files(table)]
    if not files or has_delete_files(table):
        return {}
    fields = (field for field in table.schema().fields if isinstance(field.field_type, PrimitiveType))
    by_column = {field.name: _column(field, files) for field in fields}
    return {name: statistics for name, statistics in by_column.items() if statistics != ColumnStatistics()}


def _column(field: NestedField, files: list[DataFile]) -> ColumnStatistics:
    nulls = [(file.null_value_counts or {}).get(field.field_id) for file in files]
    # A file with only nulls has no bounds and needs none.
    bounded = [file for file, count in zip(files, nulls, strict=True) if count != file.record_count]
    return ColumnStatistics(
        nulls=None if None in nulls else sum(count or 0 for count in nulls),
        minimum=_text(field, min, (file.lower_bounds for file in bounded)),
        maximum=_text(field, max, (file.upper_bounds for file in bounded)),
    )


def _text(field: NestedField, choose: Any, bounds: Iterator[Mapping[int, bytes] | None]) -> str | None:
    """Return the smallest or largest bound as a string; ``None`` when a file has none."""
    encoded = [(bound or {}).get(field.field_id) for bound in bounds]
    if not encoded or None in encoded or not isinstance(field.field_type, PrimitiveType):
        return None
    values = [from_bytes(field.field_type, value) for value in encoded if value is not None]
    return IdentityTransform[Any]().to_human_string(field.field_type, choose(values))
