"""PostgreSQL tables as refreshed tables, and as sources read over JDBC, at an exported snapshot.

Dates and times are read as numbers computed by the server. The PostgreSQL driver and Spark's JDBC reader convert them to Java
objects that depend on the time zone of each Java process: in an hour skipped by a time zone, or in October 1582, these objects
represent other times than those of the server.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from typing import Any

from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.clients.postgres.ddl import TableName, is_array, spark_type, without_arguments
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer, quote
from airflow_dynamic_tables.clients.postgres.tables import (
    PostgresTable,
    check_rights,
    columns_of,
    find_table,
    is_made_here,
    list_databases,
    types_of,
)
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier, folder_name
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, TimeColumn
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import TableLayout, spark_ddl
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    ConfigurationError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable, RowCounts, TableContent, Undone, kept_version
from airflow_dynamic_tables.formats.postgres import records
from airflow_dynamic_tables.formats.postgres.checking import DefinedTable, check_free, find
from airflow_dynamic_tables.formats.postgres.records import Record
from airflow_dynamic_tables.formats.postgres.row_versions import state_of
from airflow_dynamic_tables.formats.postgres.stage import JdbcStagedTable, Once, OneOffStagedTable, delete_left, layout_of

log = logging.getLogger(__name__)


class JdbcTable(LakeTable):
    """A table of a PostgreSQL database, given as ``table`` in schema ``public`` or as ``schema.table``.

    :raises UnsupportedError: if the name is invalid for a table.
    """

    makes_entries = True

    def __init__(self, store: PostgresStore, path: ObjectPath, file_format: str) -> None:  # noqa: ARG002 - no files
        self._store = store
        self._server = store.server
        self._database = path.database
        self._path = path
        self._name = TableName.parse(path.name)

    def stage(self, token: str) -> JdbcStagedTable:
        return JdbcStagedTable(self._store, self._database, self._name, self.load().folder(), token)

    def once(self, token: str, entry: Mapping[str, Any], *, is_new: bool) -> OneOffStagedTable:
        place = (self._store, self._database, self._name, self.load().folder())
        return OneOffStagedTable(*place, token, Once(entry, is_new))

    def check_makeable(self) -> None:
        check_rights(self._server, self._database, self._name)
        with self._server.connected(self._database) as opened:
            check_free(opened, self._name)

    def load(self) -> _LoadedJdbcTable:
        """See :meth:`LakeTable.load`; the server is queried on first use."""
        return _LoadedJdbcTable(self._store, self._path, self._name)

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`: deletes the stage tables of finished refreshes and their folders."""
        return delete_left(self._store, self._database, self._name, self.load().folder(), (before, held))


class _LoadedJdbcTable(LoadedTable):
    """A table and its last commit, read once."""

    def __init__(self, store: PostgresStore, path: ObjectPath, name: TableName) -> None:
        self._store = store
        self._server = store.server
        self._database = path.database
        self._path = path
        self._name = name

    def folder(self) -> str:
        """See :meth:`LoadedTable.folder`: it contains the plans and results of running refreshes."""
        whose = f"{self._server.jdbc_url(self._database)} {self._name}"
        own = f"{folder_name(self._path.name)}-{hashlib.sha256(whose.encode()).hexdigest()[:32]}"
        return "/".join((self._store.warehouse.rstrip("/"), folder_name(self._database), own))

    def current(self) -> Version | None:
        """See :meth:`LoadedTable.current`; ``None`` for a dropped table."""
        return self._seen and self._seen[1].version

    def layout(self) -> TableLayout | None:
        return layout_of(*self._seen) if self._seen is not None else None

    def undone(self) -> list[Undone]:
        """See :meth:`LoadedTable.undone`: detects dropped, recreated and emptied tables, but not changes of single rows."""
        return self._undone

    def versions(self) -> list[Version]:
        """See :meth:`LoadedTable.versions`; their records are kept, their rows are not."""
        if self._seen is None:
            return []
        with self._server.connected(self._database) as database:
            kept = [record.version for record in records.records(database, self._name)]
        return [version for version in kept if version.number <= self._seen[1].version.number]

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - read over JDBC
        """See :meth:`LoadedTable.read`: there are no files; Spark reads the table as a source of its database."""
        table, record = self._filled
        snapshot = record.version.snapshot
        schema = spark_ddl(layout_of(table, record).columns)
        # Changes by others are not recorded, so two versions must never be taken for equal.
        location = self._server.jdbc_url(self._database)
        return TableContent(snapshot, schema=schema, format="jdbc", state=SourceState(snapshot, location=location))

    def held_partitions(self) -> list[dict[str, str]]:
        """See :meth:`LoadedTable.held_partitions`."""
        table, record = self._filled
        keys = record.partition_keys
        if not keys:
            return []
        shown = ", ".join(f"{table.value(key)}::text AS {quote(key)}" for key in keys)
        with self._server.connected(self._database) as database:
            database.run("SET LOCAL DateStyle = ISO")
            rows = database.rows(f"SELECT DISTINCT {shown} FROM {table.name.quoted}")
        return [{key: NULL_PARTITION if value is None else value for key, value in row._mapping.items()} for row in rows]

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        if self._seen is None:
            return None
        table, record = self._seen
        keys = ", ".join(f"{table.value(key)} AS {quote(key)}" for key in record.partition_keys)
        groups = ", ".join(map(str, range(1, len(record.partition_keys) + 1)))
        grouped = (
            f"SELECT {f'{keys}, ' if keys else ''}count(*) AS n FROM {table.name.quoted}{f' GROUP BY {groups}' if keys else ''}"
        )
        specs = [f"coalesce(bool_or({condition} AND n > 0), false)::int" for condition in table.conditions(partitions)]
        query = (
            f"SELECT coalesce(sum(n), 0)::bigint AS total, count(*) FILTER (WHERE n > 0) AS partitions, "
            f"coalesce(sum(n) FILTER (WHERE {table.condition(partitions)}), 0)::bigint AS replaced, "
            f"{' + '.join(specs) or '0'} AS held FROM ({grouped}) AS counted"
        )
        with self._server.connected(self._database) as database:
            (row,) = database.rows(query)
        return RowCounts(row.replaced, row.held, row.total, row.partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LoadedTable.sample`; only the current version can be read.

        :raises UnsupportedError: for any other version.
        """
        table, record = self._filled
        if version is not None and version != record.version.number:
            kept_version(self.versions(), version, self._path)
            raise UnsupportedError(f"Version {version} of {self._path} cannot be read: PostgreSQL keeps only the current rows.")
        with self._server.connected(self._database) as database:
            database.run("SET LOCAL DateStyle = ISO")
            database.run(f"LOCK TABLE {table.name.quoted} IN ACCESS SHARE MODE")  # so that the columns do not change
            table = find(database, self._name) or table
            dated = {column.name for column in table.columns if column.spark in ("date", "timestamp", "timestamp_ntz")}
            shown = ", ".join(f"{quote(name)}::text AS {quote(name)}" if name in dated else quote(name) for name in table.types)
            read = database.rows(f"SELECT {shown} FROM {table.name.quoted} LIMIT {int(rows)}")
        return [{name: _date(value) if name in dated else value for name, value in row._mapping.items()} for row in read]

    @cached_property
    def _seen(self) -> tuple[DefinedTable, Record] | None:
        """The table, and the record of its last commit; ``None`` if either does not exist."""
        with self._server.connected(self._database) as database, suppress(StageRejectedError):
            record, table = records.look(database, self._name).record, find(database, self._name)
            return (table, record) if table is not None and record is not None else None
        return None  # not a table; the commit raises the error

    @property
    def _filled(self) -> tuple[DefinedTable, Record]:
        if self._seen is None:
            raise TableNotFoundError(f"Table {self._path} does not exist or has no version yet.")
        return self._seen

    @cached_property
    def _undone(self) -> list[Undone]:
        with self._server.connected(self._database) as database:
            record = records.look(database, self._name).record
            table = find(database, self._name)
            if record is None:
                return []
            if table is None:
                return [Undone(record.version, "and the table is gone")]
            if not is_made_here(database, self._name):
                how = "which dropped the table and recreated it; no refresh replaces the new one"
                return [Undone(record.version, how, for_good=True)]
            if record.has_rows and not table.has_rows(database):
                return [Undone(record.version, "which emptied the table; so it stays")]
        return []


def _date(text: str | None) -> date | str | None:
    """Parse a date or timestamp of the server; values that Python cannot represent, such as ``infinity``, stay text."""
    for read in (date.fromisoformat, datetime.fromisoformat):
        with suppress(ValueError):
            return text and read(text)
    return text


_MIDNIGHT = "(extract(epoch FROM {})::numeric * 1000000)::bigint"
"""SQL for the microseconds of a time of day; before PostgreSQL 14 they are exact only up to one day."""

_LATEST, _EARLIEST = 253402300799999000, -62135596800000000
"""Spark's values for ``infinity`` and ``-infinity`` in microseconds: the last millisecond of 9999 and the start of year 1."""

_TIMESTAMP = (
    f"CASE WHEN {{0}} = 'infinity' THEN {_LATEST} WHEN {{0}} = '-infinity' THEN {_EARLIEST} ELSE "
    f"({{1}}::date - DATE '1970-01-01')::bigint * 86400000000 + {_MIDNIGHT.format('{1}::time')} END"
)

_NUMBERS = {
    "date": "CASE WHEN isfinite({0}) THEN {0} - DATE '1970-01-01' END",
    "time without time zone": _MIDNIGHT,
    "time with time zone": _MIDNIGHT,
    "timestamp without time zone": _TIMESTAMP.format("{0}", "{0}"),
    "timestamp with time zone": _TIMESTAMP.format("{0}", "({0} AT TIME ZONE 'UTC')"),
}
"""SQL for the days or microseconds since 1970, by type."""


def bind(source: Source, store: PostgresStore, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - common signature
    """Bind a table to a snapshot of its database, which the server holds until its catalog is closed.

    All connections of Spark read this snapshot, however many partitions are read in parallel. Bounds that the source options omit
    for their ``partitionColumn`` are queried.

    :raises TableNotFoundError: if the table does not exist.
    :raises ConfigurationError: if the partition column does not exist.
    """
    server = store.server
    path = source.identifier.path
    _check_database(source, store)
    snapshot = server.export_snapshot(path.database)
    with server.connected(path.database) as database:
        table = _table(database, source, store)
        bounds = _bounds(database, table, source.options)
        types = types_of(database, table)
    timed = _time_columns(types)
    state, schema = _state(source, server, table, snapshot)
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format="jdbc",
        version=state.version,
        schema=schema,
        options={
            "fetchsize": "10000",  # rows; otherwise the driver fetches all rows at once, outside of a transaction
            **bounds,
            **source.options,
            "url": server.jdbc_url(path.database),
            "driver": "org.postgresql.Driver",
            "dbtable": _scanned(table.quoted, types, timed),
            "sessionInitStatement": f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'",
            **({"user": server.user} if server.user else {}),
        },
        password_variable=next(iter(store.passwords), None),
        has_files=False,
        times=timed,
        state=state,
    )


def _state(source: Source, server: PostgresServer, table: PostgresTable, snapshot: str) -> tuple[SourceState, str | None]:
    """Return the state of a table in a snapshot, and its columns if they are needed to map its partitions."""
    database = source.identifier.database
    # Snapshot names may repeat after a server restart, so they do not identify rows.
    unknown = SourceState(version=f"snapshot:{snapshot}", location=server.jdbc_url(database))
    if source.version_column is None:
        return unknown, None
    with server.at_snapshot(database, snapshot) as opened:
        columns = spark_ddl(columns_of(opened, table))
        return state_of(opened, table, source, source.version_column) or unknown, columns


_FILES = """
WITH RECURSIVE tree AS (
  SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p')
  UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT c.oid, c.relfilenode AS file FROM tree JOIN pg_class c ON c.oid = tree.oid
"""
"""The files of a table and its children. Unlike functions such as ``pg_relation_filenode``, it is true of the snapshot."""


def check_read(binding: SourceBinding, store: PostgresStore) -> None:
    """Check that a table still has the files that it had in the snapshot that Spark has read.

    In PostgreSQL, ``TRUNCATE``, ``DROP TABLE`` and an ``ALTER TABLE`` that writes rows again concern earlier snapshots, too: a
    query that begins afterwards finds no rows.

    :raises CommitRejectedError: if it has other files.
    """
    path = TableIdentifier.parse(binding.identifier).path
    server = store.server
    snapshot = binding.options["sessionInitStatement"].rpartition("SNAPSHOT ")[2].strip("'")
    try:
        with server.at_snapshot(path.database, snapshot) as then:
            table = find_table(then, path.name)
            read = _files(then, table) if table is not None else set()
    except PostgresError as error:
        log.warning("It is not known whether %s was truncated while it was read: %s", binding.identifier, error)
        return
    if table is not None:
        with server.connected(path.database) as database:
            if read <= _files(database, table):
                return
    raise CommitRejectedError(
        f"{binding.identifier} was truncated, rewritten or made again after the snapshot of this refresh, so that Spark may have "
        "read none of its rows. Nothing was committed; refresh again. To load it beside refreshes, use DELETE, not TRUNCATE."
    )


def _files(database: OpenDatabase, table: PostgresTable) -> set[tuple[int, int]]:
    found = database.rows(_FILES, {"schema": table.schema, "name": table.name})
    return {(row.oid, row.file) for row in found}


def count(source: Source, store: PostgresStore, partition: Mapping[str, str], least: int) -> int:
    """Count the rows of a table, optionally with given column values, up to ``least``.

    :raises TableNotFoundError: if the table does not exist.
    :raises ConfigurationError: if a column does not exist.
    :raises CatalogUnavailableError: if the server cannot be reached, or a value is invalid for its column.
    """
    _check_database(source, store)
    with store.server.connected(source.identifier.database) as database:
        table = _table(database, source, store)
        _types(database, table, partition)
        conditions = []
        values: dict[str, object] = {"least": least}
        for number, (column, value) in enumerate(partition.items()):
            if value == NULL_PARTITION:
                conditions.append(f"{quote(column)} IS NULL".replace("%", "%%"))
            else:
                conditions.append(f"{quote(column).replace('%', '%%')} = %(value_{number})s")
                values[f"value_{number}"] = value
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        name = table.quoted.replace("%", "%%")
        rows = database.rows(f"SELECT count(*) AS counted FROM (SELECT 1 FROM {name}{where} LIMIT %(least)s) AS wanted", values)
    return int(rows[0].counted)


def _check_database(source: Source, store: PostgresStore) -> None:
    if source.identifier.database not in list_databases(store.server, store.server.database or "postgres"):
        raise _missing(source, store)


def _table(database: OpenDatabase, source: Source, store: PostgresStore) -> PostgresTable:
    table = find_table(database, source.identifier.table)
    if table is None:
        raise _missing(source, store)
    return table


def _missing(source: Source, store: PostgresStore) -> TableNotFoundError:
    return TableNotFoundError(f"Table (or view) {source.identifier.path} does not exist in catalog {store.catalog}.")


def _types(database: OpenDatabase, table: PostgresTable, needed: Iterable[str]) -> dict[str, str]:
    """Return the columns of a table and their types."""
    types = {one.name: one.type for one in columns_of(database, table)}
    for column in needed:
        if column not in types:
            raise ConfigurationError(f"{table.listed} has no column {column!r} to read partitions by; it has {', '.join(types)}.")
    return types


def _bounds(database: OpenDatabase, table: PostgresTable, options: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's options for reading by strides of the partition column; empty if the options name none."""
    column = next((value for key, value in options.items() if key.lower() == "partitioncolumn"), None)
    if column is None:
        return {}
    types = _types(database, table, [column])

    # The bounds only define strides and filter no rows, so they may be of another snapshot.
    name = quote(column)
    (bounds,) = database.rows(f"SELECT min({name})::text AS low, max({name})::text AS high FROM {table.quoted}")
    low = bounds.low
    high = bounds.high
    if low is None:  # an empty table; Spark requires bounds anyway
        low = high = "1970-01-01" if types[column] in ("date", "timestamp", "timestamp_ntz") else "0"
    return {"lowerBound": low, "upperBound": high, "numPartitions": "4"}


def _time_columns(types: Mapping[str, str]) -> tuple[TimeColumn, ...]:
    """Return the columns that are read as numbers.

    :param types: PostgreSQL types by column, as ``format_type`` writes them.
    """
    timed = (column for column, formatted in types.items() if without_arguments(formatted) in _NUMBERS)
    return tuple(TimeColumn(name, f"_dynamic_table_time_{place}", spark_type(types[name])) for place, name in enumerate(timed))


def _scanned(table: str, types: Mapping[str, str], timed: tuple[TimeColumn, ...]) -> str:
    """Return the query that Spark reads instead of the table: all columns, needed for strides, and the numbers."""
    if not timed:
        return table
    columns = ", ".join(f"{_number(quote(column.name), types[column.name])} AS {column.number}" for column in timed)
    return f"(SELECT read.*, {columns} FROM {table} AS read) AS scanned"


def _number(column: str, formatted: str) -> str:
    column = f"read.{column}"
    expression = _NUMBERS[without_arguments(formatted)]
    if not is_array(formatted):
        return expression.format(column)
    # The failing cast reports the value with several dimensions.
    elements = f"ARRAY(SELECT {expression.format('element')} FROM unnest({column}) WITH ORDINALITY AS u(element, n) ORDER BY n)"
    return f"CASE WHEN array_ndims({column}) > 1 THEN {column}::text::bigint[] WHEN {column} IS NOT NULL THEN {elements} END"
