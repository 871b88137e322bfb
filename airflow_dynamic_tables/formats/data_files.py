"""Data files: fingerprints of partitions for change detection, validation of staged files, and sample rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column, partition_of
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_rows

_T = TypeVar("_T")

_UNREADABLE = "(a time before 1677 or after 2262)"
"""Placeholder for a column with such a time in an ORC file, because Arrow reads ORC times as 64-bit nanoseconds."""


_SMALL_FILE = 16 * 1024 * 1024
"""Most bytes of a file that is read for a few rows."""

_FILES = 5
"""Most files read for a few rows; some may be empty."""


@dataclass
class Folder:
    """A folder of data files, and the number of their rows."""

    location: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Footer:
    rows: int
    bytes: int


def staged_partitions(request: CommitRequest, data: str, file_format: str) -> dict[tuple[str, ...], Folder]:
    """Return the folders of partitions with rows in a stage, by partition values, as read from the files.

    An unpartitioned table has one partition without values.

    :raises StageRejectedError: if a file is missing, damaged, or differs from the job's result.
    """
    result = request.result
    partitions: dict[tuple[str, ...], Folder] = {}
    for file, footer in zip(result.files, _footers((file.path for file in result.files), file_format), strict=True):
        check_size(file, footer.bytes)
        if footer.rows == 0:
            continue  # nothing to publish, and no partition values
        values = tuple(planned_partition(file, request, data).values())
        partitions.setdefault(values, Folder(file.path.rpartition("/")[0])).rows += footer.rows
    check_rows(sum(folder.rows for folder in partitions.values()), result)
    return partitions


def check_size(file: StagedFile, size: int) -> None:
    """Check that a staged file has the size that the job reported."""
    if size != file.bytes:
        raise StageRejectedError(f"Staged file {file.path} has {size} bytes, not {file.bytes}.")


def planned_partition(file: StagedFile, request: CommitRequest, data: str) -> dict[str, str]:
    """Return the partition of a file, from its folder name.

    :raises StageRejectedError: if the folder name contains none, or one that is not planned.
    """
    spec = partition_of(file.path.rpartition("/")[0][len(data) + 1 :])
    if list(spec) != list(request.partition_keys) or not all(spec.values()):
        raise StageRejectedError(f"Staged file {file.path} does not say what its partition is; a value is never empty.")
    if not request.partitions.covers(spec):
        raise StageRejectedError(f"Staged file {file.path} is of partition {describe(spec)}, which was not planned.")
    return spec


def _typed(value: str | None, kind: str) -> object:
    """Convert a partition value to a type given as Spark DDL."""
    if value is None or value == NULL_PARTITION:
        return None
    if kind in ("int", "bigint", "smallint", "tinyint"):
        return int(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind.startswith("decimal"):
        return Decimal(value)
    return value == "true" if kind == "boolean" else value


def first_rows(
    files: Iterable[tuple[str, Mapping[str, str | None]]], columns: Iterable[Column], file_format: str, rows: int
) -> list[dict[str, Any]]:
    """Return the first rows of files with their partition values, restricted to the given columns."""
    kinds = {column.name: column.type for column in columns}
    typed = ((file, {key: _typed(value, kinds[key]) for key, value in spec.items()}) for file, spec in files)
    return [{name: row.get(name) for name in kinds} for row in read_rows(typed, file_format, rows)]


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Convert a table to Python rows; dates and times outside of the years 1 to 9999 become text."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_plain(value) for value in column] for column in table.columns]
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _plain(value: pa.Scalar) -> object:
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        return [(_plain(entry["key"]), _plain(entry["value"])) for entry in value.values]
    if isinstance(value, pa.StructScalar):
        return {name: _plain(value[name]) for name in value}
    if isinstance(value, (pa.ListScalar, pa.LargeListScalar)):
        return [_plain(item) for item in value.values]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.cast(pa.string()).as_py()


def read_rows(files: Iterable[tuple[str, Mapping[str, object]]], file_format: str, rows: int) -> list[dict[str, object]]:
    """Return the first rows of files with their partition values."""
    first: list[dict[str, object]] = []
    for path, values in files:
        if len(first) >= rows:
            break
        wanted = rows - len(first)
        with open_file(path) as stream:
            table = _read_parquet(stream, wanted) if file_format == "parquet" else _read_orc(stream)
        first += [{**row, **values} for row in plain_rows(table.slice(0, wanted))]
    return first


def staged_rows(planned: RefreshPlan, result: RefreshResult, rows: int) -> list[dict[str, object]]:
    """Return some rows of a stage from the smallest files, unless they are large; empty if the rows are in a server table."""
    smallest = sorted((file.bytes, file.path) for file in result.files if file.bytes <= _SMALL_FILE)[:_FILES]
    names = (path.rpartition("/")[0][len(planned.data_location) + 1 :] for _, path in smallest)
    values: Iterable[Mapping[str, object]] = (({} if planned.keys_in_files else partition_of(name)) for name in names)
    return read_rows([(path, known) for (_, path), known in zip(smallest, values, strict=True)], planned.file_format, rows)


def _read_parquet(stream: Any, rows: int) -> pa.Table:
    """Return the first rows of a Parquet file, read in this thread.

    An Arrow thread that still holds a Python stream at interpreter exit would crash the process.
    """
    file = pq.ParquetFile(stream, pre_buffer=False)
    table = file.schema_arrow.empty_table()
    for batch in file.iter_batches(batch_size=rows, use_threads=False):
        table = pa.concat_tables([table, pa.Table.from_batches([batch])])
        if table.num_rows >= rows:
            break
    return table


def _read_orc(stream: Any) -> pa.Table:
    """Return the rows of an ORC file; columns with times that Arrow cannot read contain a placeholder."""
    file = orc.ORCFile(stream)
    try:
        return file.read()
    except pa.ArrowInvalid:
        columns = {name: _read_column(file, name) for name in file.schema.names}
        return pa.table(columns)


def _read_column(file: orc.ORCFile, name: str) -> pa.ChunkedArray:
    try:
        return file.read(columns=[name]).column(name)
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.repeat(_UNREADABLE, file.nrows)])


def count_rows(files: Iterable[str], file_format: str) -> list[int]:
    """Return the row count of each file, from the footers.

    :raises StageRejectedError: if a file is missing or damaged.
    """
    return [footer.rows for footer in _footers(files, file_format)]


def _footers(files: Iterable[str], file_format: str) -> list[_Footer]:
    return read_footers(files, lambda path: _footer(path, file_format))


def read_footers(files: Iterable[str], read: Callable[[str], _T], what: str = "File") -> list[_T]:
    """Read files concurrently, because object stores have high latency.

    :raises StageRejectedError: if a file is missing or damaged; names it.
    """
    with ThreadPoolExecutor(8, thread_name_prefix="footers") as executor:
        futures = [(path, executor.submit(read, path)) for path in files]
        footers = []
        for path, future in futures:
            try:
                footers.append(future.result())
            except (OSError, ValueError, pa.ArrowException) as error:
                executor.shutdown(cancel_futures=True)
                raise StageRejectedError(f"{what} {path} is missing or damaged: {error}") from error
        return footers


def _footer(path: str, file_format: str) -> _Footer:
    with open_file(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        if file_format == "parquet":
            return _Footer(pq.read_metadata(stream).num_rows, size)
        return _Footer(orc.ORCFile(stream).nrows, size)
