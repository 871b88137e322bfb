"""Data files on their way into a table: read from their footers, sorted into the partitions that their folders name."""

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
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, describe
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_rows

_T = TypeVar("_T")

_UNREADABLE = "(a time before 1677 or after 2262)"
"""What is shown of a column that holds such a time in an ORC file, whose times Arrow reads as nanoseconds of 64 bits."""


_SMALL_FILE = 16 * 1024 * 1024
"""Bytes of a file that may be read for a few rows."""

_FILES = 5
"""How many of them may be read: a file may have no row."""


@dataclass
class Folder:
    """A folder of data files, and the rows in them."""

    location: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Footer:
    rows: int
    bytes: int


def staged_partitions(request: CommitRequest, data: str, file_format: str) -> dict[tuple[str, ...], Folder]:
    """The partitions in a stage that hold rows, by their values: the folder of each. What is really there decides.

    An unpartitioned table has one, without values.

    :param data: the folder that the job wrote into.
    :raises StageRejectedError: when a file is missing, damaged, or not what the result says.
    """
    result = request.result
    partitions: dict[tuple[str, ...], Folder] = {}
    for file, footer in zip(result.files, _footers((file.path for file in result.files), file_format), strict=True):
        check_size(file, footer.bytes)
        if footer.rows == 0:
            continue  # nothing to publish, and no partition to read from it
        values = tuple(planned_partition(file, request, data).values())
        partitions.setdefault(values, Folder(file.path.rpartition("/")[0])).rows += footer.rows
    check_rows(sum(folder.rows for folder in partitions.values()), result)
    return partitions


def check_size(file: StagedFile, size: int) -> None:
    """Check that a file of a stage is as long as the job said.

    :raises StageRejectedError: when it is not.
    """
    if size != file.bytes:
        raise StageRejectedError(f"Staged file {file.path} has {size} bytes, not {file.bytes}.")


def planned_partition(file: StagedFile, request: CommitRequest, data: str) -> dict[str, str]:
    """The partition of a file with rows, as its folder names it.

    :param data: the folder that the job wrote into.
    :raises StageRejectedError: when the folder names none, or one that is not to be replaced.
    """
    spec = partition_of(file.path.rpartition("/")[0][len(data) + 1 :])
    if list(spec) != list(request.partition_keys) or not all(spec.values()):
        raise StageRejectedError(f"Staged file {file.path} does not say what its partition is; a value is never empty.")
    if not request.partitions.covers(spec):
        raise StageRejectedError(f"Staged file {file.path} is of partition {describe(spec)}, which was not planned.")
    return spec


def _typed(value: str | None, kind: str) -> object:
    """The value of a partition key, whose type is Spark's DDL text."""
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
    """The first rows of some files, each with the partition that its folder stands for; without columns that are not named."""
    kinds = {column.name: column.type for column in columns}
    typed = ((file, {key: _typed(value, kinds[key]) for key, value in spec.items()}) for file, spec in files)
    return [{name: row.get(name) for name in kinds} for row in read_rows(typed, file_format, rows)]


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as Python has them; dates and times beyond the years 1 to 9999, which Python lacks, as text."""
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
    """The first rows of some files, each with the values that its folder stands for."""
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
    """Some rows of a stage, from the smallest of its files if they are small; none when the rows are in the table of a server."""
    smallest = sorted((file.bytes, file.path) for file in result.files if file.bytes <= _SMALL_FILE)[:_FILES]
    names = (path.rpartition("/")[0][len(planned.data_location) + 1 :] for _, path in smallest)
    values: Iterable[Mapping[str, object]] = (({} if planned.keys_in_files else partition_of(name)) for name in names)
    return read_rows([(path, known) for (_, path), known in zip(smallest, values, strict=True)], planned.file_format, rows)


def _read_parquet(stream: Any, rows: int) -> pa.Table:
    """The first rows of a Parquet file, read by this thread: one of Arrow's own that still holds a stream of Python when the
    interpreter ends takes the process down.
    """
    file = pq.ParquetFile(stream, pre_buffer=False)
    table = file.schema_arrow.empty_table()
    for batch in file.iter_batches(batch_size=rows, use_threads=False):
        table = pa.concat_tables([table, pa.Table.from_batches([batch])])
        if table.num_rows >= rows:
            break
    return table


def _read_orc(stream: Any) -> pa.Table:
    """The rows of an ORC file; of a column with times that Arrow cannot read from ORC, the text that says so."""
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
    """Rows in each of some files, read from their footers.

    :raises StageRejectedError: when a file is missing or damaged.
    """
    return [footer.rows for footer in _footers(files, file_format)]


def _footers(files: Iterable[str], file_format: str) -> list[_Footer]:
    return read_footers(files, lambda path: _footer(path, file_format))


def read_footers(files: Iterable[str], read: Callable[[str], _T], what: str = "File") -> list[_T]:
    """What is read of each of some files, many at the same time: an object store takes its time for each.

    :param what: what messages call such a file.
    :raises StageRejectedError: when one is missing or damaged; names it.
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
