"""Entries of the Delta log: staged data files, table metadata and commit actions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.delta.log import Action
from airflow_dynamic_tables.clients.delta.snapshots import (
    CLUSTERING,
    NO_TIME_ZONE,
    NOTHING_YET,
    WITHOUT_ZONE,
    DeltaFile,
    DeltaSnapshot,
    has_type,
    schema_to_json,
)
from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.core.refresh.plan import StagedFile
from airflow_dynamic_tables.core.schema import Column, parted
from airflow_dynamic_tables.exceptions import StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import FENCE, TOKEN, check_rows
from airflow_dynamic_tables.formats.data_files import check_size, planned_partition, read_footers

LONGEST_BOUND = 32
"""Most characters of a text used as a bound; a longer text would have to be truncated, and an upper bound increased."""

_BOUNDED = {"tinyint", "smallint", "int", "bigint", "string", "date"}
"""Types whose bounds are spelled alike in the log and in Parquet: no fractions, time zones or NaN."""

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
"""Arrow types required in the files, for types that map to exactly one."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file added by a commit: its location, partition, and the content of its footer (``stats`` as in the log)."""

    uri: str
    partition: Mapping[str, str]
    rows: int
    bytes: int
    stats: str


def staged_files(request: CommitRequest, data: str) -> list[AddedFile]:
    """Return the files of a stage that contain rows, as read from their footers.

    :raises StageRejectedError: if a file is missing, damaged, or differs from the job's result.
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
    """Return the file if it contains rows."""
    check_size(file, footer.bytes)
    rows = footer.metadata.num_rows
    if rows == 0:
        return None  # nothing to publish, and no partition values
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
    """Return row, null count and bounds statistics as JSON, which readers use to skip files."""
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


APPLICATION = "airflow-dynamic-tables"
"""Application id of transactions in the log; they record the latest version number and, with a suffix after a slash, more."""

FRESH = f"{APPLICATION}/data-timestamp"
"""Application id that records the data timestamp of the latest version, in milliseconds since 1970."""

_URL_SAFE = "/=!$&'()*+,;:@~"
"""Characters that are not escaped in paths of the log, besides letters and digits."""

KEEPS_TOKENS = "delta.setTransactionRetentionDuration"
"""Table property with the retention of recorded transactions."""

TOKENS_KEPT = "interval 30 days"
"""Retention of tokens: as long as a refresh may be retried. Others may change it."""

_FOREVER = 253402300799000
"""Time of a recorded transaction that never expires: the year 9999. Spark's checkpoints leave out those without a time."""

_PROPERTIES = {
    # Delta's clean-up removes versions, but retention is determined by the definition.
    "delta.enableExpiredLogCleanup": "false",
    KEEPS_TOKENS: TOKENS_KEPT,
}

_PLACEHOLDER = Column("_no_version_yet", "string")

_PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean", "decimal")
_BAD_SIGNS = " ,;{}()\n\t="


@dataclass(frozen=True, slots=True)
class Definition:
    """The metadata of a table."""

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DeltaChange:
    """The changes of a commit: the definition of the table, and its added and removed files."""

    definition: Definition
    added: Sequence[AddedFile] = ()
    restored: Sequence[DeltaFile] = ()
    removed: Sequence[DeltaFile] = ()
    operation: str = "WRITE"
    parameters: Mapping[str, str] = field(default_factory=dict)


def application_of(token: str) -> str:
    """Return the application id that records the version committed with a token."""
    return f"{APPLICATION}/{token}"


def definition_of(snapshot: DeltaSnapshot) -> Definition:
    """Return the metadata of a snapshot."""
    return Definition(snapshot.columns, snapshot.partition_keys, snapshot.comment)


def commit_entry(
    before: DeltaSnapshot | None, location: str, change: DeltaChange, told: Mapping[str, str], number: int, fresh: datetime | None
) -> list[Action]:
    """Return the log entry of a commit; its first line identifies the commit.

    :param before: the current table, if it exists.
    :param told: properties of the version, including its token.
    :raises UnsupportedError: if a Delta table cannot have this definition.
    """
    now = _now_ms()
    entry: list[Action] = [{"commitInfo": _commit_info(before, change, told, now)}]
    entry += _table_actions(before, change.definition, now)
    entry.append({"txn": {"appId": application_of(told[TOKEN]), "version": number, "lastUpdated": now}})
    entry.append({"txn": {"appId": APPLICATION, "version": number, "lastUpdated": _FOREVER}})
    if fresh is not None:
        entry.append({"txn": {"appId": FRESH, "version": int(fresh.timestamp() * 1000), "lastUpdated": _FOREVER}})
    entry += [_remove(file, now) for file in change.removed]
    entry += [_restore(file) for file in change.restored]
    entry += [_add(file, location, now) for file in change.added]
    return entry


def fence_entry(before: DeltaSnapshot | None, token: str) -> list[Action]:
    """Return an entry that takes the next number without changes; it creates a table without a version if there is none."""
    now = _now_ms()
    info = {"timestamp": now, "operation": "FENCE", "operationParameters": {}, "engineInfo": APPLICATION, "tags": {FENCE: token}}
    if before is not None:
        return [{"commitInfo": info}]
    placeholder = Definition((_PLACEHOLDER,), ())
    return [
        {"commitInfo": info},
        {"protocol": _protocol(placeholder.columns)},
        {"metaData": _metadata(None, placeholder, {**_PROPERTIES, NOTHING_YET: "true"}, now)},
    ]


def check_definition(definition: Definition) -> None:
    """Check that a Delta table can have these columns and partition keys."""
    schema_to_json(definition.columns)
    names: set[str] = set()
    for column in definition.columns:
        if set(_BAD_SIGNS) & set(column.name):
            raise UnsupportedError(
                f"Column {column.name!r}: names in a Delta table have no space and none of ,;{{}}()=; "
                "give it another name in the query (AS ...)."
            )
        if column.name.lower() in names:
            raise UnsupportedError(
                f"Column {column.name!r}: a Delta table does not tell cases of letters apart; rename one of two."
            )
        names.add(column.name.lower())
        if column.name in definition.partition_keys and column.type.partition("(")[0] not in _PARTITION_TYPES:
            raise UnsupportedError(
                f"Partition key {column.name!r} is of type {column.type}, whose values are spelled in more than one way; CAST it "
                "AS STRING or AS DATE in the query."
            )
    if definition.partition_keys and len(definition.partition_keys) == len(definition.columns):
        raise UnsupportedError("A Delta table needs a column that is no partition key.")


def is_new(snapshot: DeltaSnapshot | None) -> bool:
    """Return whether nothing was committed yet."""
    return snapshot is None or NOTHING_YET in snapshot.properties


def _table_actions(before: DeltaSnapshot | None, wanted: Definition, now: int) -> list[Action]:
    if before is None or is_new(before):
        check_definition(wanted)
        known = before.properties if before is not None else _PROPERTIES
        properties = {name: value for name, value in known.items() if name != NOTHING_YET}
        return [{"protocol": _protocol(wanted.columns)}, {"metaData": _metadata(before, wanted, properties, now)}]
    properties = {**_PROPERTIES, **before.properties}  # a CREATE OR REPLACE TABLE of others drops them
    if wanted == definition_of(before) and properties == before.properties:
        return []
    check_definition(wanted)
    actions: list[Action] = [{"metaData": _metadata(before, wanted, properties, now)}, *_without_clustering(before, wanted)]
    if has_type(wanted.columns, WITHOUT_ZONE) and NO_TIME_ZONE not in before.protocol.reader_features:
        actions.insert(0, {"protocol": _upgraded(before)})
    return actions


def _without_clustering(before: DeltaSnapshot, wanted: Definition) -> list[Action]:
    """Return the action that ends the clustering of a table: a column of it may be gone, or it gets partition keys."""
    is_same = all(column in wanted.columns for column in before.columns) and not wanted.partition_keys
    if is_same or CLUSTERING not in before.protocol.writer_features:
        return []
    nothing = json.dumps({"clusteringColumns": [], "domainName": _CLUSTERED})
    return [{"domainMetadata": {"domain": _CLUSTERED, "configuration": nothing, "removed": False}}]


_CLUSTERED = "delta.clustering"
"""The domain whose metadata name the columns by which files are clustered."""


def _protocol(columns: Sequence[Column]) -> dict[str, Any]:
    if not has_type(columns, WITHOUT_ZONE):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = [NO_TIME_ZONE]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def _upgraded(before: DeltaSnapshot) -> dict[str, Any]:
    """Return the protocol after adding a first timestamp without time zone; it lists all features implied by the old version."""
    known = before.protocol
    implied = {feature for since, feature in _IMPLIED if since <= known.writer} if not known.writer_features else set()
    readers = set(known.reader_features) | ({"columnMapping"} if "columnMapping" in implied else set())
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*readers, NO_TIME_ZONE}),
        "writerFeatures": sorted({*known.writer_features, *implied, NO_TIME_ZONE}),
    }


_IMPLIED = (
    (2, "appendOnly"),
    (2, "invariants"),
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
    (5, "columnMapping"),
    (6, "identityColumns"),
)
"""Features implied by a writer version and all later ones, up to the versions that list features."""


def _metadata(before: DeltaSnapshot | None, wanted: Definition, properties: Mapping[str, str], now: int) -> dict[str, Any]:
    return {
        "id": before.id if before is not None else str(uuid4()),
        "name": None,
        "description": wanted.comment,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_to_json([replace(column, nullable=True) for column in wanted.columns]),
        "partitionColumns": list(wanted.partition_keys),
        "configuration": dict(properties),
        "createdTime": before.created_ms if before is not None else now,
    }


def _commit_info(before: DeltaSnapshot | None, change: DeltaChange, told: Mapping[str, str], now: int) -> dict[str, Any]:
    keys = json.dumps(list(change.definition.partition_keys))
    return {
        "timestamp": now,
        "operation": change.operation,
        "operationParameters": {**change.parameters, "partitionBy": keys},
        **({"readVersion": before.version} if before is not None else {}),
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": APPLICATION,
        "operationMetrics": {
            "numFiles": str(len(change.added) + len(change.restored)),
            "numRemovedFiles": str(len(change.removed)),
            "numOutputRows": str(sum(file.rows for file in change.added)),
            "numOutputBytes": str(sum(file.bytes for file in change.added)),
        },
        "tags": dict(told),
    }


def _add(file: AddedFile, location: str, now: int) -> Action:
    path = quote(file.uri[len(location) + 1 :], safe=_URL_SAFE)
    return _addition(path, file.partition, file.bytes, now, file.stats)


def _restore(file: DeltaFile) -> Action:
    stats = json.dumps({"numRecords": file.rows}) if file.rows is not None else None
    return _addition(file.path, file.partition, file.bytes, file.modified_ms, stats)


def _addition(path: str, partition: Mapping[str, str | None], size: int, modified_ms: int, stats: str | None) -> Action:
    told = {} if stats is None else {"stats": stats}
    said = {"path": path, "partitionValues": dict(partition), "size": size, "modificationTime": modified_ms, "dataChange": True}
    return {"add": {**said, **told}}


def _remove(file: DeltaFile, now: int) -> Action:
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": now,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.bytes,
        }
    }


def _now_ms() -> int:
    return int(time.time() * 1000)
