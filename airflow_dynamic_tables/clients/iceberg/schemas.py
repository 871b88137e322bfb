"""Conversion of Iceberg types, schemas and partition specs to Spark's types and this package's keys, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
    parse_transform,
)
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
    UUIDType,
)

from airflow_dynamic_tables.core.partition_transforms import HiddenKey, hidden_key
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import Array, DataType, Field, Map, Primitive, Struct, parse_type
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


def to_spark(kind: IcebergType) -> str:
    """Spark's DDL text of an Iceberg type.

    :raises UnsupportedError: when Spark has no such type.
    """
    return str(_spark_type(kind))


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The columns of an Iceberg schema."""
    return tuple(Column(field.name, to_spark(field.field_type), not field.required, field.doc or None) for field in schema.fields)


def schema_of(columns: Sequence[Column]) -> Schema:
    """An Iceberg schema of these columns, all optional; its field ids are only valid for creating a table.

    :raises UnsupportedError: names a column whose type Iceberg does not have.
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
    return _iceberg_type(parse_type(ddl), ids or count(1))


def _field(number: int, column: Column, ids: Iterator[int]) -> NestedField:
    try:
        kind = to_iceberg(column.type, ids)
    except UnsupportedError as error:
        raise UnsupportedError(f"Column {column.name!r}: {error}") from error
    return NestedField(number, column.name, kind, required=False, doc=column.comment)


def _spark_type(kind: IcebergType) -> DataType:
    match kind:
        case DecimalType():
            return Primitive("decimal", (kind.precision, kind.scale))
        case ListType():
            return Array(_spark_type(kind.element_type), not kind.element_required)
        case MapType():
            return Map(_spark_type(kind.key_type), _spark_type(kind.value_type), not kind.value_required)
        case StructType():
            return Struct(
                tuple(Field(field.name, _spark_type(field.field_type), not field.required, field.doc) for field in kind.fields)
            )
    if type(kind) not in _SPARK_OF:
        raise UnsupportedError(f"Iceberg type {kind} has no counterpart in Spark.")
    return Primitive(_SPARK_OF[type(kind)])


def _iceberg_type(kind: DataType, ids: Iterator[int]) -> IcebergType:
    match kind:
        case Primitive("decimal", (precision, scale)):
            return DecimalType(precision, scale)
        case Primitive(name):
            if str(kind) not in _ICEBERG_OF:
                family = name.split()[0]  # the units of an interval do not matter
                raise UnsupportedError(f"Iceberg has no type {family}; cast it to another type in the query.")
            return _ICEBERG_OF[str(kind)]()
        case Array(element):
            return ListType(next(ids), _iceberg_type(element, ids), element_required=False)
        case Map(key, value):
            key_id = next(ids)
            value_id = next(ids)
            return MapType(key_id, _iceberg_type(key, ids), value_id, _iceberg_type(value, ids), value_required=False)
        case Struct(fields):
            return StructType(*(_nested_field(field, ids) for field in fields))


def _nested_field(field: Field, ids: Iterator[int]) -> NestedField:
    number = next(ids)
    return NestedField(number, field.name, _iceberg_type(field.type, ids), required=False, doc=field.comment)


_KNOWN = (IdentityTransform, YearTransform, MonthTransform, DayTransform, HourTransform, BucketTransform, TruncateTransform)


@dataclass(frozen=True, slots=True)
class IcebergKey:
    """A partition field of a key, without its field id."""

    key: str
    source: NestedField
    transform: Transform[Any, Any]
    name: str


def key_of(field: PartitionField, schema: Schema) -> str:
    """The key of a partition field; the field's name if only another engine can compute it."""
    column = str(schema.find_column_name(field.source_id))
    match field.transform:
        case BucketTransform(num_buckets=number):
            return str(HiddenKey("bucket", column, number))
        case TruncateTransform(width=number):
            return str(HiddenKey("truncate", column, number))
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform():
            return str(HiddenKey(str(field.transform), column))
    return field.name


def keys_of(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """The keys of a spec in their order."""
    return tuple(key_of(field, schema) for field in spec.fields)


def are_known(spec: PartitionSpec) -> bool:
    """Return whether this package can compute all transforms of a spec."""
    return all(isinstance(field.transform, _KNOWN) for field in spec.fields)


def key_fields(schema: Schema, keys: Sequence[str]) -> Iterator[IcebergKey]:
    """The partition fields of a table's keys.

    :raises UnsupportedError: when a key cannot be computed from its column.
    """
    for key in keys:
        hidden = hidden_key(key)
        if hidden is None:
            yield IcebergKey(key, schema.find_field(key), IdentityTransform(), key)
            continue
        source = schema.find_field(hidden.column)
        transform = transform_of(hidden)
        if not transform.can_transform(source.field_type):
            raise UnsupportedError(f"Partition key {key} cannot be computed of {hidden.column}, which is {source.field_type}.")
        yield IcebergKey(key, source, transform, hidden.field)


def transform_of(key: HiddenKey) -> Transform[Any, Any]:
    """Iceberg's transform of a key."""
    return parse_transform(key.transform if key.number is None else f"{key.transform}[{key.number}]")


def check_names(columns: Iterable[Column], keys: Sequence[str]) -> None:
    """Check that no column has the name of a computed partition field, because no engine could open the table."""
    taken = {column.name for column in columns}
    for key in keys:
        hidden = hidden_key(key)
        if hidden is not None and hidden.field in taken:
            raise UnsupportedError(
                f"Iceberg calls the partitions of {key} {hidden.field!r}, which is a column, too; give that another name."
            )
