"""Merging of Parquet files: same rows, columns and types, with bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.files import create_file, open_file
from airflow_dynamic_tables.core.refresh.plan import StagedFile
from airflow_dynamic_tables.exceptions import StageRejectedError

_BATCH_BYTES = 8 * 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Most bytes of Arrow data in memory: per read, and per write."""

_MOST_ROWS = 64 * 1024
"""Most rows per read, regardless of their size."""

_ARROW = b"ARROW:schema"
"""Key of Arrow's schema in a footer; Arrow writes it itself on request."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a file that determine how its rows are read: in files of equal shape, equal bytes have equal meaning.

    ``columns`` are names, types and field ids in Parquet, ``types`` the Arrow types, and ``remarks`` the writer's metadata for
    readers, such as the calendar of dates.
    """

    columns: str
    types: str
    remarks: frozenset[tuple[bytes, bytes]]

    @property
    def has_field_ids(self) -> bool:
        """Whether columns are identified by field id instead of name."""
        return self.columns.count("field_id=") != self.columns.count("field_id=-1 ")

    @property
    def can_be_merged(self) -> bool:
        """Whether columns have no field ids and are not 96-bit timestamps, which Arrow reads as another type."""
        return not self.has_field_ids and "int96" not in self.columns


def shape(path: str) -> Shape:
    """Return the shape of a Parquet file.

    :raises StageRejectedError: if it cannot be read.
    """
    try:
        with open_file(path) as stream:
            return _shape(pq.read_metadata(stream))
    except (OSError, pa.ArrowException) as error:
        raise StageRejectedError(f"{path} cannot be read: {error}") from error


def merge(sources: Sequence[str], target: str) -> StagedFile:
    """Write the rows of files of one shape to a new file, with the compression of the first.

    :raises StageRejectedError: if a file cannot be read, or the new file differs in shape, or in the counts of rows, values or
        nulls.
    """
    counts = _Counts()
    try:
        with open_file(sources[0]) as stream:
            first = pq.ParquetFile(stream, pre_buffer=False)
            with create_file(target) as output, _writer(output, first) as writer:
                _copy(sources, writer, counts)
                writer.add_key_value_metadata(_remarks(first.metadata))
            wanted = _shape(first.metadata)
        with open_file(target) as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            written = pq.read_metadata(stream)
    except (pa.ArrowException, ValueError) as error:
        raise StageRejectedError(
            f"{len(sources)} files, the first of which is {sources[0]}, cannot be made one: {error}"
        ) from error
    if not counts.are_of(written) or _shape(written) != wanted:
        raise StageRejectedError(f"{target} has not the rows and columns of the {len(sources)} files that it was made of.")
    return StagedFile(target, size)


def _shape(footer: pq.FileMetaData) -> Shape:
    columns = str(footer.schema).partition("\n")[2].partition("\n")[2]  # without the memory address and the schema name
    types = footer.schema.to_arrow_schema().remove_metadata().to_string()
    return Shape(columns, types, frozenset(_remarks(footer).items()))


def _remarks(footer: pq.FileMetaData) -> dict[bytes, bytes]:
    return {key: value for key, value in (footer.metadata or {}).items() if key != _ARROW}


def _writer(output: Any, like: pq.ParquetFile) -> pq.ParquetWriter:
    compression = like.metadata.row_group(0).column(0).compression
    return pq.ParquetWriter(
        output,
        like.schema_arrow.remove_metadata(),
        compression="NONE" if compression == "UNCOMPRESSED" else compression,
        store_schema=_ARROW in (like.metadata.metadata or {}),
        store_decimal_as_integer=True,  # as in Spark and Iceberg
    )


class _Counts:
    """Counts of rows, values and nulls from footers; nulls only for columns with at most one value per row."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._uncounted: set[tuple[str, str]] = set()

    def add(self, footer: pq.FileMetaData) -> None:
        """Add the counts of a file."""
        self._counts["rows", ""] += footer.num_rows
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                self._counts["values", column.path_in_schema] += column.num_values
                nulls = ("nulls", column.path_in_schema)
                if (
                    footer.schema.column(place).max_repetition_level
                    or not column.is_stats_set
                    or not column.statistics.has_null_count
                ):
                    self._uncounted.add(nulls)
                else:
                    self._counts[nulls] += column.statistics.null_count

    def are_of(self, footer: pq.FileMetaData) -> bool:
        """Return whether a file has the same counts; missing counts match any number."""
        other = _Counts()
        other.add(footer)
        unknown = self._uncounted | other._uncounted
        return all(self._counts[what] == other._counts[what] for what in {*self._counts, *other._counts} - unknown)


def _copy(sources: Sequence[str], writer: pq.ParquetWriter, counts: _Counts) -> None:
    """Write the rows of files, and add up the counts of their footers."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for source in sources:
        with open_file(source) as stream:
            file = pq.ParquetFile(stream, pre_buffer=False)
            counts.add(file.metadata)
            for batch in _batches(file):
                held.append(batch)
                held_bytes += batch.nbytes
                if held_bytes > _ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held))
                    held = []
                    held_bytes = 0
    if held:
        writer.write_table(pa.Table.from_batches(held))


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, read in this thread: Arrow's threads must not hold a Python stream at interpreter exit."""
    rows = max(file.metadata.num_rows, 1)
    decoded = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
    at_once = max(1, min(_MOST_ROWS, rows * _BATCH_BYTES // max(decoded, 1)))
    yield from file.iter_batches(batch_size=at_once, use_threads=False)
