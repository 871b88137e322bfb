"""Columns of Delta tables: their schemas are Spark's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import parse_type, type_from_json
from airflow_dynamic_tables.core.tables.types import Array, DataType, Field, Map, Primitive, Struct
from airflow_dynamic_tables.exceptions import UnsupportedError

WITHOUT_ZONE = "timestamp_ntz"
"""A type that only readers and writers know which know the feature ``timestampNtz``."""

_PRIMITIVES = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *("string", "binary", "date", "timestamp", WITHOUT_ZONE),
}


def schema_to_json(columns: Sequence[Column]) -> str:
    """The schema of a Delta table with these columns; all may be null.

    :raises UnsupportedError: names the column whose type Delta does not have.
    """
    return json.dumps({"type": "struct", "fields": [_field(column) for column in columns]})


def schema_from_json(schema: str) -> tuple[Column, ...]:
    """The columns of a schema.

    :raises UnsupportedError: for a type that Spark does not have.
    """
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def has_type(columns: Sequence[Column], name: str) -> bool:
    """Whether a column has a type of this name, or has it within."""
    return any(name in _names(parse_type(column.type)) for column in columns)


def _field(column: Column) -> dict[str, Any]:
    kind = parse_type(column.type)
    if unknown := sorted(_names(kind) - _PRIMITIVES):
        family = unknown[0].split()[0]  # an interval's units do not matter
        raise UnsupportedError(f"Column {column.name!r}: Delta has no type {family} here; cast it to another type in the query.")
    return Field(column.name, kind, nullable=True, comment=column.comment).as_json()


def _column(field: Mapping[str, Any]) -> Column:
    metadata = field.get("metadata") or {}
    return Column(field["name"], str(type_from_json(field["type"])), field.get("nullable", True), metadata.get("comment"))


def _names(kind: DataType) -> set[str]:
    """The names of all types without parts in one."""
    match kind:
        case Primitive(name):
            return {name}
        case Array(element):
            return _names(element)
        case Map(key, value):
            return _names(key) | _names(value)
        case Struct(fields):
            return set().union(*(_names(field.type) for field in fields))
