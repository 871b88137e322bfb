"""The first rows of an Iceberg table, for whoever looks at it."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.formats.data_files import plain_rows, read_rows


def first_rows(table: Table, snapshot_id: int | None, rows: int) -> list[dict[str, Any]]:
    """The first rows of a version, ``None`` for the current one."""
    scan = table.scan(snapshot_id=snapshot_id, limit=rows)
    schema = scan.projection()
    if any(_loses_nulls(field.field_type) for field in schema.fields):
        tasks = list(scan.plan_files())
        if all(_says_it_all(task, schema) for task in tasks):
            read = read_rows([(task.file.file_path, {}) for task in tasks], "parquet", rows)
            return [{field.name: row.get(field.name) for field in schema.fields} for row in read]
    return plain_rows(scan.to_arrow())


def _loses_nulls(kind: IcebergType) -> bool:
    """Whether PyIceberg reads a null of that type as empty: a list, or the values of a map, of structs (its issue 3833)."""
    if isinstance(kind, StructType):
        return any(_loses_nulls(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return isinstance(kind.element_type, StructType) or _loses_nulls(kind.element_type)
    return isinstance(kind, MapType) and (isinstance(kind.value_type, StructType) or _loses_nulls(kind.value_type))


def _says_it_all(task: FileScanTask, schema: Schema) -> bool:
    """Whether the rows of a file can be read without Iceberg: nobody deleted any, and its columns are the table's first."""
    if task.delete_files or task.file.file_format is not FileFormat.PARQUET:
        return False
    with open_file(task.file.file_path) as stream:
        names = pq.read_schema(stream).names
    return bool(names == [field.name for field in schema.fields][: len(names)])
