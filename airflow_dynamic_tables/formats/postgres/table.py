"""Refreshed tables of a PostgreSQL database: a version consists of the rows left by its commit, and its row of metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from typing import Any

from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.clients.postgres.ddl import TableName
from airflow_dynamic_tables.clients.postgres.server import quote
from airflow_dynamic_tables.clients.postgres.tables import check_rights, is_made_here
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import TableLayout, spark_ddl
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import StageRejectedError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable, LoadedTable, RowCounts, TableContent, Undone, kept_version
from airflow_dynamic_tables.formats.postgres import records
from airflow_dynamic_tables.formats.postgres.checking import DefinedTable, check_free, find
from airflow_dynamic_tables.formats.postgres.records import Record
from airflow_dynamic_tables.formats.postgres.stage import JdbcStagedTable, Once, OneOffStagedTable, delete_left, layout_of


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

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LoadedTable.count`; the server counts the rows."""
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
