"""Staged data files of an Iceberg table, and their partitions as PyIceberg computes them from the footers.

For an order-preserving transform, the bounds in the footer determine the partition, because all values between them are in the
same partition. For buckets, and for texts too long for bounds, the column itself is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import (
    _check_pyarrow_schema_compatible,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.files import as_os_errors
from airflow_dynamic_tables.clients.iceberg.revisions import partition
from airflow_dynamic_tables.clients.iceberg.schemas import key_of
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.refresh.plan import StagedFile
from airflow_dynamic_tables.exceptions import StageRejectedError

_ROWS_AT_ONCE = 131_072

_WITHOUT_SIGN = 2**31 - 1
"""Mask of the hash bits that determine the bucket."""


def read_footers(io: FileIO, metadata: TableMetadata, files: Sequence[StagedFile]) -> Iterator[DataFile]:
    """Yield the actual data files, in the order of ``files``.

    :raises StageRejectedError: if a file is missing, damaged, or of another size than reported; names it.
    """
    reader = _FooterReader(io, metadata)
    executor = ExecutorFactory.get_or_create()
    futures = [executor.submit(reader.read, file.path) for file in files]
    for file, future in zip(files, futures, strict=True):
        try:
            with as_os_errors():
                data_file = future.result()
        except (OSError, ValueError, KeyError, NotImplementedError) as error:
            raise StageRejectedError(f"Staged file {file.path} is missing or damaged: {error}") from error
        if data_file.file_size_in_bytes != file.bytes:
            raise StageRejectedError(f"Staged file {file.path} has {data_file.file_size_in_bytes} bytes, not {file.bytes}.")
        yield data_file


def staged_partition(file: DataFile, metadata: TableMetadata) -> dict[str, str | None]:
    """Return the partition of a file as text; only values computed by transforms may be null.

    :raises StageRejectedError: if it does not belong to exactly one partition.
    """
    spec = metadata.spec()
    schema = metadata.schema()
    try:
        values = partition(file, spec, schema)
    except OverflowError as error:
        keys = ", ".join(key_of(field, schema) for field in spec.fields)
        raise StageRejectedError(
            f"Staged file {file.file_path} is of a date beyond the years 1 to 9999, which cannot be a partition ({keys}); "
            "make the key a text in the query."
        ) from error
    nulls = file.null_value_counts or {}
    sources = {key_of(field, schema): field.source_id for field in spec.fields}
    for key in plain_keys(values):
        if values[key] is None or nulls.get(sources[key]):
            raise StageRejectedError(
                f"Staged file {file.file_path} does not say what its partition is: "
                f"{key!r} is null in some rows, or has no statistics."
            )
    return values


class _FooterReader:
    """PyIceberg's ``parquet_file_to_data_file`` for many files; results that only depend on the schema are reused."""

    def __init__(self, io: FileIO, metadata: TableMetadata) -> None:
        self._io = io
        self._metadata = metadata
        self._statistics = compute_statistics_plan(metadata.schema(), metadata.properties)
        self._ids = parquet_path_to_id_mapping(metadata.schema())
        self._checked: list[pa.Schema] = []

    def read(self, path: str) -> DataFile:
        source = self._io.new_input(path)
        with source.open() as stream:
            footer = pq.read_metadata(stream)
        self._check(footer.schema.to_arrow_schema())
        statistics = data_file_statistics_from_parquet_metadata(_Footer(footer), self._statistics, self._ids)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=_partition_values(source, statistics, self._metadata.spec(), self._metadata.schema()),
            file_size_in_bytes=len(source),
            sort_order_id=None,
            spec_id=self._metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def _check(self, schema: pa.Schema) -> None:
        if schema not in self._checked:
            _check_pyarrow_schema_compatible(self._metadata.schema(), schema, format_version=self._metadata.format_version)
            self._checked.append(schema)


class _Part:
    """Proxy for a part of a Parquet footer; subclasses override attributes."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class _Footer(_Part):
    """A footer with dates and times as numbers, because Python's end with the year 9999, unlike those of Spark and Iceberg."""

    def row_group(self, number: int) -> _RowGroup:
        return _RowGroup(self._part.row_group(number))


class _RowGroup(_Part):
    def column(self, number: int) -> _Column:
        return _Column(self._part.column(number))


class _Column(_Part):
    @property
    def statistics(self) -> Any:
        statistics = self._part.statistics
        kind = statistics.logical_type
        is_number = kind.type == "DATE" or (kind.type == "TIMESTAMP" and "timeUnit=microseconds" in str(kind))
        return _Numbers(statistics) if is_number else statistics


class _Numbers(_Part):
    """Statistics in days or microseconds since 1970, as Iceberg stores them."""

    @property
    def min(self) -> int | None:
        least: int | None = self._part.min_raw
        return least

    @property
    def max(self) -> int | None:
        most: int | None = self._part.max_raw
        return most


def _partition_values(file: InputFile, statistics: DataFileStatistics, spec: PartitionSpec, schema: Schema) -> Record:
    """Return the values of all partition fields.

    :raises StageRejectedError: if a file contains rows of several partitions, or invalid partition values; names the key.
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
    """Return whether a type can represent a value: truncation may yield a value below the smallest one."""
    match kind:
        case IntegerType() | LongType():
            return value is None or kind.min <= value <= kind.max
        case DecimalType():
            return value is None or len(value.as_tuple().digits) <= kind.precision
    return True


def _transform(field: PartitionField, kind: IcebergType) -> Callable[[Any], Any]:
    """Return PyIceberg's transform; for buckets its hash only, because PyIceberg's modulo takes ten times as long."""
    match field.transform:
        case BucketTransform(num_buckets=number):
            hashed: Callable[[Any], Any] = field.transform.transform(kind, bucket=False)
            return lambda value: None if value is None else (hashed(value) & _WITHOUT_SIGN) % number
    transform: Callable[[Any], Any] = field.transform.transform(kind)
    return transform


def _only(values: Iterator[Any]) -> Any:
    first = next(values, None)  # None for a file without rows, which fits any partition
    for value in values:
        if value != first:
            raise ValueError(f"rows of it are of {first} and of {value}")
    return first


def _transformed(file: InputFile, column: str, transform: Callable[[Any], Any]) -> Iterator[Any]:
    with file.open() as stream:
        parquet = pq.ParquetFile(stream, pre_buffer=False)
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=[column], use_threads=False):
            yield from map(transform, _as_iceberg(batch.column(0).unique()).to_pylist())


def _as_iceberg(values: pa.Array) -> pa.Array:
    """Convert dates and times to numbers, as in Iceberg, because Python's end with the year 9999."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values
