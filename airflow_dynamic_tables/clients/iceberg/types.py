"""Iceberg types and schemas as Spark's DDL text, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_dynamic_tables.core.identifiers import quote, quote_if_needed
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

_SPARK_OF: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "binary",
    FixedType: "binary",
    UUIDType: "string",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
}
_ICEBERG_OF: dict[str, Callable[[], IcebergType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "bigint": LongType,
    "float": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp_ntz": TimestampType,
    "timestamp": TimestamptzType,
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[^\s<>(),:`]+|[<>(),:])")


def to_spark(kind: IcebergType) -> str:
    """Spark's DDL text of an Iceberg type, as ``DataType.simpleString`` writes it.

    :raises UnsupportedError: when Spark has no such type.
    """
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"array<{to_spark(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{to_spark(kind.key_type)},{to_spark(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{quote_if_needed(field.name)}:{to_spark(field.field_type)}' for field in kind.fields)}>"
    if isinstance(kind, TimeType) or type(kind) not in _SPARK_OF:
        raise UnsupportedError(f"Iceberg type {kind} has no counterpart in Spark.")
    return _SPARK_OF[type(kind)]


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The columns of an Iceberg schema."""
    return tuple(Column(field.name, to_spark(field.field_type), not field.required, field.doc) for field in schema.fields)


def schema_of(columns: Sequence[Column]) -> Schema:
    """An Iceberg schema of these columns, all optional; its field ids are only good for creating a table.

    :raises UnsupportedError: names the column whose type Iceberg does not have.
    """
    ids = count(1)
    fields = [_field(next(ids), column, ids) for column in columns]
    try:
        return Schema(*fields)
    except ValueError as error:
        raise UnsupportedError(f"Iceberg cannot tell these columns apart: {error}") from error


def to_iceberg(ddl: str, ids: Iterator[int] | None = None) -> IcebergType:
    """The Iceberg type of Spark's DDL text; nested fields are optional and take their ids from ``ids``.

    :raises UnsupportedError: when Iceberg has no such type.
    """
    tokens = _TOKEN.findall(ddl)
    kind = _parse(tokens, ids or count(1), ddl)
    if tokens:
        raise UnsupportedError(f"Type {ddl} cannot be read beyond {tokens[0]!r}.")
    return kind


def spark_ddl(columns: Sequence[Column]) -> str:
    """A Spark DDL schema of these columns, e.g. `` `a` int, `b` string``."""
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns)


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _field(number: int, column: Column, ids: Iterator[int]) -> NestedField:
    try:
        kind = to_iceberg(column.type, ids)
    except UnsupportedError as error:
        raise UnsupportedError(f"Column {column.name!r}: {error}") from error
    return NestedField(number, column.name, kind, required=False, doc=column.comment)


def _parse(tokens: list[str], ids: Iterator[int], ddl: str) -> IcebergType:
    """Recursive descent; takes what it reads off the front of ``tokens``."""

    def take(expected: str | None = None) -> str:
        token = tokens.pop(0) if tokens else "the end"
        if expected is not None and token != expected:
            raise UnsupportedError(f"Type {ddl} has {token!r} where {expected!r} is due.")
        return token

    def nested() -> IcebergType:
        return _parse(tokens, ids, ddl)

    name = take().lower()
    if name in _ICEBERG_OF:
        return _ICEBERG_OF[name]()
    if name == "decimal":
        take("(")
        precision, _, scale, _ = int(take()), take(","), int(take()), take(")")
        return DecimalType(precision, scale)
    if name == "array":
        take("<")
        element_id, element, _ = next(ids), nested(), take(">")
        return ListType(element_id, element, element_required=False)
    if name == "map":
        take("<")
        key_id, value_id, key, _, value, _ = next(ids), next(ids), nested(), take(","), nested(), take(">")
        return MapType(key_id, key, value_id, value, value_required=False)
    if name == "struct":
        take("<")
        fields: list[NestedField] = []
        while not fields or take() == ",":
            field_id, field, _ = next(ids), _unquote(take()), take(":")
            fields.append(NestedField(field_id, field, nested(), required=False))
        return StructType(*fields)
    raise UnsupportedError(f"Iceberg has no type {name}; cast it to another type in the query.")
