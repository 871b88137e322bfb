"""Which partition a data file is of, as PyIceberg's own transforms have it; nobody is believed who wrote the file.

The bounds in the footer of a file say it where a transform keeps the order of values: all values between them are in the same
partition then. Of buckets, and of texts that are too long to have bounds, the column itself is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputFile
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType

from airflow_dynamic_tables.clients.iceberg.keys import key_of
from airflow_dynamic_tables.exceptions import StageRejectedError

_ROWS_AT_ONCE = 131_072

_WITHOUT_SIGN = 2**31 - 1
"""The bits of a hash that say its bucket."""


def partition_values(file: InputFile, statistics: DataFileStatistics, spec: PartitionSpec, schema: Schema) -> Record:
    """The value of every partition field.

    :raises StageRejectedError: when a file holds rows of more than one partition, or of what no partition can be; names the key.
    """
    return Record(*(_checked(file, statistics, field, schema) for field in spec.fields))


def _checked(file: InputFile, statistics: DataFileStatistics, field: PartitionField, schema: Schema) -> Any:
    if isinstance(field.transform, IdentityTransform):
        return statistics._partition_value(field, schema)
    try:
        return _value(file, statistics, field, schema)
    except OverflowError as error:
        why = "a date beyond the years 1 to 9999, which cannot be a partition"
        raise StageRejectedError(f"Staged file {file.location} holds {why} of {key_of(field, schema)}.") from error
    except ValueError as error:
        message = f"Staged file {file.location} does not hold one partition of {key_of(field, schema)}: {error}"
        raise StageRejectedError(message) from error


def _value(file: InputFile, statistics: DataFileStatistics, field: PartitionField, schema: Schema) -> Any:
    nulls = statistics.null_value_counts.get(field.source_id)
    if nulls == statistics.record_count:
        return None
    column = schema.find_field(field.source_id)
    bounds = statistics.column_aggregates.get(field.source_id)
    has_bounds = bounds is not None and None not in (bounds.current_min, bounds.current_max)
    if field.transform.preserves_order and has_bounds and nulls == 0:
        value = statistics._partition_value(field, schema)
    else:
        value = _only(_transformed(file, column.name, _transform(field, column.field_type)))
    if not _fits(value, field.transform.result_type(column.field_type)):
        raise ValueError(f"{value} is less than its type {column.field_type} holds")
    return value


def _fits(value: Any, kind: IcebergType) -> bool:
    """Whether a type holds a value: a width may reach below the least one."""
    match kind:
        case IntegerType() | LongType():
            return value is None or kind.min <= value <= kind.max
        case DecimalType():
            return value is None or len(value.as_tuple().digits) <= kind.precision
    return True


def _transform(field: PartitionField, kind: IcebergType) -> Callable[[Any], Any]:
    """PyIceberg's own transform; of a bucket its own hash, to which it adds a remainder that takes ten times as long."""
    match field.transform:
        case BucketTransform(num_buckets=number):
            hashed: Callable[[Any], Any] = field.transform.transform(kind, bucket=False)
            return lambda value: None if value is None else (hashed(value) & _WITHOUT_SIGN) % number
    transform: Callable[[Any], Any] = field.transform.transform(kind)
    return transform


def _only(values: Iterator[Any]) -> Any:
    first = next(values, None)  # none for a file without rows, which may be anywhere
    for value in values:
        if value != first:
            raise ValueError(f"rows of it are of {first} and of {value}")
    return first


def _transformed(file: InputFile, column: str, transform: Callable[[Any], Any]) -> Iterator[Any]:
    """The partition of every value of a column that is not the same as another one near to it."""
    with file.open() as stream:
        parquet = pq.ParquetFile(stream, pre_buffer=False)
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=[column], use_threads=False):
            yield from map(transform, _as_iceberg(batch.column(0).unique()).to_pylist())


def _as_iceberg(values: pa.Array) -> pa.Array:
    """Dates and times as numbers, which is what Iceberg computes with: Python's own end with the year 9999."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values
