"""Data files on their way into a Delta table: read from their footers, and told of as the log does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.core.refresh.plan import StagedFile
from airflow_dynamic_tables.core.tables.schema import Column, parted
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_rows
from airflow_dynamic_tables.formats.data_files import check_size, planned_partition, read_footers

LONGEST_BOUND = 32
"""Characters of a text up to which it is a bound: a longer one would have to be cut, and the upper one made greater."""

_BOUNDED = {"tinyint", "smallint", "int", "bigint", "string", "date"}
"""Types whose bounds the log spells as Parquet does: no fractions, no zones, no NaN."""

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
"""Types whose files hold one type of Arrow and no other."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a commit adds: where it is, its partition, and what its footer says of it (``stats`` as the log has it)."""

    uri: str
    partition: Mapping[str, str]
    rows: int
    bytes: int
    stats: str


def staged_files(request: CommitRequest, data: str) -> list[AddedFile]:
    """The files of a stage that hold rows. What is really there decides.

    :param data: the folder that the job wrote into.
    :raises StageRejectedError: when a file is missing, damaged, or not what the result says.
    """
    columns, _ = parted(request.result.columns, request.partition_keys)
    files = request.result.files
    footers = read_footers((file.path for file in files), _footer, "Staged file")
    added = [_checked(file, footer, columns, request, data) for file, footer in zip(files, footers, strict=True)]
    holding_rows = [file for file in added if file is not None]
    check_rows(sum(file.rows for file in holding_rows), request.result)
    return holding_rows


@dataclass(frozen=True, slots=True)
class _Footer:
    metadata: pq.FileMetaData
    bytes: int


def _checked(file: StagedFile, footer: _Footer, columns: Sequence[Column], request: CommitRequest, data: str) -> AddedFile | None:
    """The file, if it holds rows."""
    check_size(file, footer.bytes)
    rows = footer.metadata.num_rows
    if rows == 0:
        return None  # nothing to publish, and no partition to read from it
    _check_columns(file.path, footer.metadata.schema.to_arrow_schema(), columns)
    return AddedFile(file.path, planned_partition(file, request, data), rows, footer.bytes, _stats(footer.metadata, columns))


def _check_columns(path: str, schema: pa.Schema, columns: Sequence[Column]) -> None:
    expected = {column.name: _ARROW.get(column.type) for column in columns}
    if set(schema.names) != expected.keys():
        raise StageRejectedError(f"Staged file {path} has columns {', '.join(schema.names)}, not {', '.join(expected)}.")
    for name, kind in expected.items():
        if kind is not None and schema.field(name).type != kind:
            raise StageRejectedError(f"Staged file {path} has {schema.field(name).type} in column {name!r}, not {kind}.")


def _footer(path: str) -> _Footer:
    with open_file(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        return _Footer(pq.read_metadata(stream), size)


def _stats(metadata: pq.FileMetaData, columns: Iterable[Column]) -> str:
    """The rows of a file, and the nulls and bounds of its columns, by which readers leave files out."""
    kinds = {column.name: column.type for column in columns}
    nulls: dict[str, int] = {}
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for position in range(metadata.num_columns):
        name = metadata.schema.column(position).path
        parts = [group.column(position).statistics for group in groups if group.num_rows]
        if name not in kinds or not all(part is not None and part.has_null_count for part in parts):
            continue
        nulls[name] = sum(part.null_count for part in parts)
        filled = [
            part
            for part, group in zip(parts, (one for one in groups if one.num_rows), strict=True)
            if part.null_count < group.num_rows
        ]
        if kinds[name] in _BOUNDED and filled and all(part.has_min_max for part in filled):
            lower[name], upper[name] = min(part.min for part in filled), max(part.max for part in filled)
    short = {name for name in lower if _is_short(lower[name]) and _is_short(upper[name])}
    bounds = {
        key: {name: _plain(value) for name, value in values.items() if name in short}
        for key, values in (("minValues", lower), ("maxValues", upper))
    }
    return json.dumps({"numRecords": metadata.num_rows, **bounds, "nullCount": nulls}, ensure_ascii=False)


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= LONGEST_BOUND


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
