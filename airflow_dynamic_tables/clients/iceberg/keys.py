"""Partition fields of Iceberg as partition keys: the name of a column, or what is computed of one, ``bucket(16, id)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
from pyiceberg.types import NestedField

from airflow_dynamic_tables.core.partitioning import HiddenKey, hidden_key
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

_KNOWN = (IdentityTransform, YearTransform, MonthTransform, DayTransform, HourTransform, BucketTransform, TruncateTransform)


@dataclass(frozen=True, slots=True)
class KeyField:
    """What a partition field of a key is, but for its number."""

    key: str
    source: NestedField
    transform: Transform[Any, Any]
    name: str


def key_of(field: PartitionField, schema: Schema) -> str:
    """The key that a partition field is; what only another engine computes by the name of the field."""
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
    """Whether all that a spec computes of columns can be computed here."""
    return all(isinstance(field.transform, _KNOWN) for field in spec.fields)


def key_fields(schema: Schema, keys: Sequence[str]) -> Iterator[KeyField]:
    """The partition fields of a table's keys.

    :raises UnsupportedError: when a key cannot be computed of its column.
    """
    for key in keys:
        hidden = hidden_key(key)
        if hidden is None:
            yield KeyField(key, schema.find_field(key), IdentityTransform(), key)
            continue
        source = schema.find_field(hidden.column)
        transform = transform_of(hidden)
        if not transform.can_transform(source.field_type):
            raise UnsupportedError(f"Partition key {key} cannot be computed of {hidden.column}, which is {source.field_type}.")
        yield KeyField(key, source, transform, hidden.field)


def transform_of(key: HiddenKey) -> Transform[Any, Any]:
    """Iceberg's transform of a key."""
    return parse_transform(key.transform if key.number is None else f"{key.transform}[{key.number}]")


def check_names(columns: Iterable[Column], keys: Sequence[str]) -> None:
    """Check that no column has the name of a partition field that is computed of another: no engine could open the table.

    :raises UnsupportedError: names it.
    """
    taken = {column.name for column in columns}
    for key in keys:
        hidden = hidden_key(key)
        if hidden is not None and hidden.field in taken:
            raise UnsupportedError(
                f"Iceberg calls the partitions of {key} {hidden.field!r}, which is a column, too; give that another name."
            )
