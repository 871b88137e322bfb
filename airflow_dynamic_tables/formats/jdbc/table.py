"""Tables of a PostgreSQL database that are refreshed here: a version is what its commit left there, and a row about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.clients.postgres.making import check_rights
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.own_tables import is_made_here
from airflow_dynamic_tables.clients.postgres.server import quote
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import TableLayout, spark_ddl
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import StageRejectedError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable, Undone, kept_version
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.jdbc import records
from airflow_dynamic_tables.formats.jdbc.checking import check_free
from airflow_dynamic_tables.formats.jdbc.orphans import delete_left
from airflow_dynamic_tables.formats.jdbc.physical import ServerTable, find
from airflow_dynamic_tables.formats.jdbc.records import Record
from airflow_dynamic_tables.formats.jdbc.stage import JdbcStagedTable, Once, OneOffStagedTable, layout_of


class JdbcTable(LakeTable):
    """A table of a PostgreSQL database, by ``table`` in schema ``public`` or by ``schema.table``.

    :raises UnsupportedError: when no table can have that name.
    """

    makes_entries = True

    def __init__(self, store: PostgresStore, path: ObjectPath, file_format: str) -> None:  # noqa: ARG002 - it has no files
        self._store = store
        self._server = store.server
        self._database = path.database
        self._path = path
        self._name = TableName.parse(path.name)

    def stage(self, token: str) -> JdbcStagedTable:
        """See :meth:`LakeTable.stage`."""
        return JdbcStagedTable(self._store, self._database, self._name, self.folder(), token)

    def once(self, token: str, entry: Mapping[str, Any], *, is_new: bool) -> OneOffStagedTable:
        """See :meth:`LakeTable.once`."""
        once = Once(entry, is_new)
        return OneOffStagedTable(self._store, self._database, self._name, self.folder(), token, once)

    def check_makeable(self) -> None:
        """See :meth:`LakeTable.check_makeable`."""
        check_rights(self._server, self._database, self._name)
        with self._server.connected(self._database) as opened:
            check_free(opened, self._name)

    def folder(self) -> str:
        """See :meth:`LakeTable.folder`: it has the plans and results of refreshes, while they run."""
        whose = f"{self._server.jdbc_url(self._database)} {self._name}"
        own = f"{folder_name(self._path.name)}-{hashlib.sha256(whose.encode()).hexdigest()[:32]}"
        return "/".join((self._store.warehouse.rstrip("/"), folder_name(self._database), own))

    def current(self) -> Version | None:
        """See :meth:`LakeTable.current`; none of a table that somebody dropped."""
        record, table = self._look()
        return record.version if record is not None and table is not None else None

    def layout(self) -> TableLayout | None:
        """See :meth:`LakeTable.layout`."""
        record, table = self._look()
        return layout_of(table, record) if record is not None and table is not None else None

    def undone(self) -> list[Undone]:
        """See :meth:`LakeTable.undone`: a table that was dropped, made anew or emptied is noticed, single rows are not."""
        with self._server.connected(self._database) as database:
            record = records.look(database, self._name).record
            table = find(database, self._name)
            if record is None:
                return []
            if table is None:
                return [Undone(record.version, "and the table is gone")]
            if not is_made_here(database, self._name):
                how = "which dropped the table and made it anew; no refresh replaces that one"
                return [Undone(record.version, how, for_good=True)]
            if record.has_rows and not table.has_rows(database):
                return [Undone(record.version, "which emptied the table; so it stays")]
        return []

    def versions(self) -> list[Version]:
        """See :meth:`LakeTable.versions`; what is told of them is kept, their rows are not."""
        with self._server.connected(self._database) as database:
            if find(database, self._name) is None:
                return []
            return [record.version for record in records.records(database, self._name)]

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - Spark needs no catalog for it
        """See :meth:`LakeTable.read`: there are no files; whoever reads it with Spark binds it as a source of its database."""
        record, table = self._filled()
        snapshot = record.version.snapshot
        schema = spark_ddl(layout_of(table, record).columns)
        # Of rows that somebody else changes nothing tells, so nobody may take two versions for the same.
        location = self._server.jdbc_url(self._database)
        return TableContent(snapshot, schema=schema, format="jdbc", state=SourceState(snapshot, location=location))

    def snapshot(self) -> str:
        """See :meth:`LakeTable.snapshot`."""
        return self._filled()[0].version.snapshot

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LakeTable.count`; the server counts."""
        record, table = self._look()
        if record is None or table is None:
            return None
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
        """See :meth:`LakeTable.sample`; only the current version can be read.

        :raises UnsupportedError: for another version.
        """
        record, table = self._filled()
        if version is not None and version != record.version.number:
            kept_version(self.versions(), version, self._path)
            raise UnsupportedError(f"Version {version} of {self._path} cannot be read: PostgreSQL keeps only the current rows.")
        with self._server.connected(self._database) as database:
            database.run("SET LOCAL DateStyle = ISO")
            database.run(f"LOCK TABLE {table.name.quoted} IN ACCESS SHARE MODE")  # so that the columns stay what they are now
            table = find(database, self._name) or table
            dated = {column.name for column in table.columns if column.spark in ("date", "timestamp", "timestamp_ntz")}
            shown = ", ".join(f"{quote(name)}::text AS {quote(name)}" if name in dated else quote(name) for name in table.types)
            read = database.rows(f"SELECT {shown} FROM {table.name.quoted} LIMIT {int(rows)}")
        return [{name: _date(value) if name in dated else value for name, value in row._mapping.items()} for row in read]

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`: stage tables of refreshes that are over, and their folders."""
        return delete_left(self._store, self._database, self._name, self.folder(), (before, held))

    def _look(self) -> tuple[Record | None, ServerTable | None]:
        with self._server.connected(self._database) as database:
            try:
                return records.look(database, self._name).record, find(database, self._name)
            except StageRejectedError:
                return None, None  # it is something else, as the commit will say

    def _filled(self) -> tuple[Record, ServerTable]:
        record, table = self._look()
        if record is None or table is None:
            raise TableNotFoundError(f"Table {self._path} does not exist or has no version yet.")
        return record, table


def _date(text: str | None) -> date | str | None:
    """A date, or a moment, as the server spells it; what Python has none for, such as ``infinity``, stays text."""
    for read in (date.fromisoformat, datetime.fromisoformat):
        with suppress(ValueError):
            return text and read(text)
    return text
