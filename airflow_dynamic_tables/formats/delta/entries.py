"""What entries of a Delta log say: a commit of ours, a fence; and how the table is made that they are of."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from airflow_dynamic_tables.clients.delta.features import NO_TIME_ZONE
from airflow_dynamic_tables.clients.delta.log import Action
from airflow_dynamic_tables.clients.delta.snapshots import NOTHING_YET, DeltaFile, DeltaSnapshot
from airflow_dynamic_tables.clients.delta.types import WITHOUT_ZONE, has_type, schema_to_json
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.commits import FENCE, TOKEN
from airflow_dynamic_tables.formats.delta.staged import AddedFile

APPLICATION = "airflow-dynamic-tables"
"""The application whose transactions are noted in a table: the number of its latest version, and, behind a slash, more."""

FRESH = f"{APPLICATION}/data-timestamp"
"""Where the data timestamp of the latest version is noted, in milliseconds since 1970."""

_URL_SAFE = "/=!$&'()*+,;:@~"
"""Signs that a path of the log has as they are, beside letters and digits."""

KEEPS_TOKENS = "delta.setTransactionRetentionDuration"
"""Property of a table that says how long it knows what an application noted."""

TOKENS_KEPT = "interval 30 days"
"""How long a token is looked up: for as long as a refresh of it may come back. Others may change that."""

_PROPERTIES = {
    # A clean-up takes away versions; which ones are kept is said by the retention of the definition.
    "delta.enableExpiredLogCleanup": "false",
    KEEPS_TOKENS: TOKENS_KEPT,
}

_PLACEHOLDER = Column("_no_version_yet", "string")

_PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean", "decimal")
_BAD_SIGNS = " ,;{}()\n\t="


@dataclass(frozen=True, slots=True)
class Definition:
    """What the metadata of a table say of it."""

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit makes of a table: what it is like, what is put in and what is taken out."""

    definition: Definition
    added: Sequence[AddedFile] = ()
    restored: Sequence[DeltaFile] = ()
    removed: Sequence[DeltaFile] = ()
    operation: str = "WRITE"
    parameters: Mapping[str, str] = field(default_factory=dict)


def application_of(token: str) -> str:
    """The application under which the version that a token made is noted."""
    return f"{APPLICATION}/{token}"


def definition_of(snapshot: DeltaSnapshot) -> Definition:
    """What a table is like."""
    return Definition(snapshot.columns, snapshot.partition_keys, snapshot.comment)


def commit_entry(
    before: DeltaSnapshot | None, location: str, change: Change, told: Mapping[str, str], number: int, fresh: datetime | None
) -> list[Action]:
    """The entry of a commit; who reads only its first line knows whose it is.

    :param before: the table as it is now, if there is one.
    :param told: properties of the version, with its token.
    :raises UnsupportedError: when a Delta table cannot be like that.
    """
    now = _now_ms()
    entry: list[Action] = [{"commitInfo": _commit_info(before, change, told, now)}]
    entry += _table_actions(before, change.definition, now)
    entry.append({"txn": {"appId": application_of(told[TOKEN]), "version": number, "lastUpdated": now}})
    entry.append({"txn": {"appId": APPLICATION, "version": number}})  # without a time it is never forgotten
    if fresh is not None:
        entry.append({"txn": {"appId": FRESH, "version": int(fresh.timestamp() * 1000)}})
    entry += [_remove(file, now) for file in change.removed]
    entry += [_restore(file) for file in change.restored]
    entry += [_add(file, location, now) for file in change.added]
    return entry


def fence_entry(before: DeltaSnapshot | None, token: str) -> list[Action]:
    """An entry that takes the next number and changes nothing; where there is no table yet, it makes one without a version."""
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
    """Check that a Delta table can have these columns and partition keys.

    :raises UnsupportedError: names the first that it cannot.
    """
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
    """Whether nothing was ever committed."""
    return snapshot is None or NOTHING_YET in snapshot.properties


def _table_actions(before: DeltaSnapshot | None, wanted: Definition, now: int) -> list[Action]:
    """What changes of the table itself."""
    if before is None or is_new(before):
        check_definition(wanted)
        known = before.properties if before is not None else _PROPERTIES
        properties = {name: value for name, value in known.items() if name != NOTHING_YET}
        return [{"protocol": _protocol(wanted.columns)}, {"metaData": _metadata(before, wanted, properties, now)}]
    if wanted == definition_of(before):
        return []
    check_definition(wanted)
    actions: list[Action] = [{"metaData": _metadata(before, wanted, before.properties, now)}]
    if has_type(wanted.columns, WITHOUT_ZONE) and NO_TIME_ZONE not in before.protocol.reader_features:
        actions.insert(0, {"protocol": _upgraded(before)})
    return actions


def _protocol(columns: Sequence[Column]) -> dict[str, Any]:
    if not has_type(columns, WITHOUT_ZONE):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = [NO_TIME_ZONE]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def _upgraded(before: DeltaSnapshot) -> dict[str, Any]:
    """The protocol of a table that gets its first timestamp without time zone: what its version implied is named from now on."""
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
"""Features that every table of a writer version has, from that version on until they are named."""


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


def _commit_info(before: DeltaSnapshot | None, change: Change, told: Mapping[str, str], now: int) -> dict[str, Any]:
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
