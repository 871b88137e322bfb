"""The state of a table by a column that each write of a row changes, such as ``updated_at``, or the system column ``xmin``.

The server returns, for each partition, the number of rows and the sum of the hashes of their versions. Inserted, updated and
deleted rows change these, also if a transaction commits late, so that its versions are not the largest.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence

from airflow_dynamic_tables.clients.postgres.ddl import without_arguments
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, quote
from airflow_dynamic_tables.clients.postgres.tables import PostgresTable, types_of
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.fingerprints import schema_digest

log = logging.getLogger(__name__)

_MOST_PARTITIONS = 100_000
"""Limit of partitions with a fingerprint each; a table with more is compared as one."""

_TRANSACTION = "xmin"
"""The system column with the transaction that wrote a row."""

_COUNTERS = {"smallint", "integer", "bigint", "numeric", "xid", "xid8", "uuid", "bytea", "text", "character varying"}
_TIMES = {"timestamp without time zone", "timestamp with time zone"}
_KEYS = {"date", "smallint", "integer", "bigint"}
"""Types of partition keys: PostgreSQL and Spark compare them and write them in the same way."""

_PLAIN = re.compile(r"-?\d+|\d{4}-\d{2}-\d{2}")
"""Text of a partition value; others are ``infinity`` and dates that Spark writes differently."""

_SHAPE = """
WITH RECURSIVE tree AS (
  SELECT {oid}::oid AS oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT (SELECT relkind::text FROM pg_class WHERE oid = {oid}) AS kind,
  (SELECT string_agg(concat_ws(':', oid, pg_relation_filenode(oid)), ',' ORDER BY oid) FROM tree) AS files,
  (SELECT string_agg(concat_ws(' ', a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attgenerated <> ''
    THEN pg_get_expr(d.adbin, d.adrelid) END), ',' ORDER BY a.attnum)
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped) AS columns
"""
"""The kind of a table, its columns, and its files with those of its children: TRUNCATE and ALTER TABLE write other files."""


def state_of(snapshot: OpenDatabase, table: PostgresTable, source: Source, version_column: str) -> SourceState | None:
    """Return the state of a table in a snapshot; ``None`` if a row has no version, so that changes cannot be recognised.

    :param snapshot: its settings of dates and times are those of :meth:`~.server.PostgresServer.at_snapshot`.
    :raises ConfigurationError: if the columns do not exist, or their types do not identify versions or partitions.
    """
    # Read before the rows: if ALTER TABLE writes rows in between, the next refresh sees other files.
    (shape,) = snapshot.rows(_SHAPE.format(oid=table.oid))
    if shape.kind not in ("r", "p", "m"):
        raise ConfigurationError(f"{source.identifier} is no table, so 'version_column' cannot show its changes; remove it.")
    version = _version(snapshot, table, source, version_column)
    partitions = _partitions(snapshot, table, version, source.partition_keys)
    if partitions is None:
        log.warning("%s counts as changed, because rows have no value in column %s.", source.identifier, version_column)
        return None
    identity = _digest(shape.files)
    return SourceState(
        version=f"rows:{_digest(identity, *sorted(f'{text} {print_}' for text, print_ in partitions.items()))}",
        identity=identity,
        schema=schema_digest(shape.columns or ""),
        partitions=partitions,
    )


def _version(snapshot: OpenDatabase, table: PostgresTable, source: Source, name: str) -> str:
    """Return the version column in SQL, after checking its type and those of the partition keys."""
    types = {**types_of(snapshot, table), _TRANSACTION: "xid"}
    if missing := [column for column in (name, *source.partition_keys) if column not in types]:
        raise ConfigurationError(f"{source.identifier} has no column {missing[0]!r}; it has {', '.join(types)}.")
    # A time with a precision, such as timestamp(0), may be that of two writes.
    if without_arguments(types[name]) not in _COUNTERS and types[name] not in _TIMES:
        raise ConfigurationError(
            f"{source.identifier}: 'version_column' {name!r} is of type {types[name]}, which may be equal after a write; "
            "name a column with a counter or a time in microseconds, or xmin."
        )
    for key in source.partition_keys:
        if types[key] not in _KEYS:
            raise ConfigurationError(
                f"{source.identifier}: with 'version_column' a partition key is a date or an integer, and {key!r} is of type "
                f"{types[key]}; remove it from 'partitioned_by'."
            )
    return quote(name)


def _partitions(snapshot: OpenDatabase, table: PostgresTable, version: str, keys: Sequence[str]) -> dict[str, str] | None:
    """Return the fingerprint of each partition, by its text; ``None`` if a row has no version.

    :param version: the version column in SQL.
    """
    columns = [f"{quote(key)}::text AS key_{number}" for number, key in enumerate(keys)]
    hashes = f'sum(hashtextextended({version}::text COLLATE "C", 0)::numeric)::text AS hashes'
    counts = ("count(*) AS rows", f"count({version}) AS versions", hashes)
    groups = f" GROUP BY {', '.join(map(quote, keys))}" if keys else ""
    query = f"SELECT {', '.join((*columns, *counts))} FROM {table.quoted}{groups} LIMIT {_MOST_PARTITIONS + 1}"
    partitions = {}
    for row in (found := snapshot.rows(query)):
        values = [getattr(row, f"key_{number}") for number in range(len(keys))]
        if row.versions < row.rows:
            return None
        if len(found) > _MOST_PARTITIONS or not all(value is None or _PLAIN.fullmatch(value) for value in values):
            return _partitions(snapshot, table, version, ())
        partitions[describe(dict(zip(keys, values, strict=True)))] = _digest(str(row.rows), row.hashes or "")
    return partitions


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
