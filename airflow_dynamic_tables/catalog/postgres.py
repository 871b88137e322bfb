"""PostgreSQL databases as catalogs: their schemas, tables, partitions and entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from airflow_dynamic_tables.catalog.base import (
    CatalogDefaults,
    CatalogEntry,
    absolute_uri,
    database_taken,
    no_database,
    no_table,
    no_version,
    other_kind,
    partition_keys,
    table_taken,
)
from airflow_dynamic_tables.catalog.operations import CatalogOfOperations
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    TableStatistics,
    decode,
    encode,
)
from airflow_dynamic_tables.clients.postgres.ddl import ENTRIES, TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer, literal, quote
from airflow_dynamic_tables.clients.postgres.tables import (
    NO_PRIVILEGE,
    columns_of,
    find_table,
    forget_commits,
    is_made_here,
    is_there,
    keep_entry,
    latest_partition_keys,
    latest_snapshot,
    list_databases,
    list_tables,
    lock_commits,
    make_own_tables,
    named_holders,
    no_right_on_own,
    rename_commits,
    tie_commits,
)
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.lineage import DatasetName
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSpec
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, ConflictError, UnsupportedError

_SCHEMAS = """
SELECT n.nspname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(entries)s AND c.relkind = 'r'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1
"""


OwnTable = CatalogDynamicTable | CatalogTable
"""A table of this package: a dynamic table, or one created by CREATE TABLE AS."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of tables of this package in one database, on one connection.

    The entry of a table created by CREATE TABLE AS is valid only while that same table exists: it was created with the table,
    and remains when the table is dropped in PostgreSQL.
    """

    database: OpenDatabase

    def dynamic(self) -> dict[str, CatalogDynamicTable]:
        """Return every dynamic table by its name."""
        found: dict[str, CatalogDynamicTable] = {}
        for schema in self.database.rows(_SCHEMAS, {"entries": ENTRIES}):
            for row in self.database.rows(f"SELECT table_name, value FROM {quote(schema.name, ENTRIES)}"):
                entry = _entry(row.value, TableName(schema.name, row.table_name))
                if isinstance(entry, CatalogDynamicTable):
                    found[TableName(schema.name, row.table_name).listed] = entry
        return dict(sorted(found.items()))

    def get(self, table: TableName, *, is_changed: bool = False) -> OwnTable | None:
        """Return a table; ``None`` when it has no valid entry.

        :param is_changed: lock the row until the end of the transaction.
        """
        entry = self._row(table, is_changed=is_changed)
        return None if entry is None or self._is_left(table, entry) else entry

    def put(self, table: TableName, entry: OwnTable) -> None:
        """Insert or update an entry; an existing one must be of the same kind."""
        keep_entry(self.database, table, encode(entry))

    def clear(self, table: TableName) -> None:
        """Delete the entry and the versions of a table that CREATE TABLE AS created and another client dropped."""
        entry = self._row(table, is_changed=True)
        if entry is not None and self._is_left(table, entry):
            forget_commits(self.database, table)
            self.remove(table)

    def _row(self, table: TableName, *, is_changed: bool) -> OwnTable | None:
        if not is_there(self.database, table.schema, ENTRIES):
            return None
        query = f"SELECT value FROM {table.entries} WHERE {_is(table)}{' FOR UPDATE' if is_changed else ''}"
        try:
            return next((_entry(row.value, table) for row in self.database.rows(query)), None)
        except PostgresError as error:
            if error.sqlstate != NO_PRIVILEGE:
                raise
            raise no_right_on_own(self.database.user, table) from error

    def _is_left(self, table: TableName, entry: OwnTable) -> bool:
        return isinstance(entry, CatalogTable) and not is_made_here(self.database, table)

    def rename(self, table: TableName, renamed: TableName) -> None:
        """Rename an entry within its schema."""
        self.database.run(f"UPDATE {table.entries} SET table_name = {literal(renamed.table)} WHERE {_is(table)}")

    def remove(self, table: TableName) -> None:
        """Delete an entry."""
        self.database.run(f"DELETE FROM {table.entries} WHERE {_is(table)}")


def _is(table: TableName) -> str:
    return f"table_name = {literal(table.table)}"


def _entry(value: Mapping[str, Any], table: TableName) -> OwnTable:
    entry = decode(value["kind"], value["value"], table.listed)
    if not isinstance(entry, OwnTable):
        raise TypeError(f"{value['kind']} is nothing that is made here")
    return entry


_FORMAT = "jdbc"

_DEPENDENT = "2BP01"
"""SQLSTATE for an object that cannot be dropped because others depend on it."""


def _named(path: ObjectPath) -> TableName | None:
    """Return the table name of a path; ``None`` when no table of this package can have it, and so none exists."""
    try:
        return TableName.parse(path.name)
    except UnsupportedError:
        return None


_DATABASE = "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = %(name)s"

LOCK_TIMEOUT = 30.0
"""Seconds for which a commit waits for locks."""


class JdbcCatalog(CatalogOfOperations):
    """The databases of a PostgreSQL server; only dynamic tables can be created.

    :param url: URL of one database of the server, which is the default one.
    :param warehouse: URI of the folder for the small files of refreshes.
    :raises ConfigurationError: when the URL is malformed or of another kind of server.
    """

    def __init__(
        self,
        name: str,
        url: str,
        default_database: str | None = None,
        warehouse: str = "",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        self._server = PostgresServer(url, f"catalog {name}")
        self._warehouse = warehouse
        self._lock_timeout = lock_timeout
        super().__init__(name, default_database or self._server.database or "postgres")

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:
        warehouse = entry.folder("warehouse") or absolute_uri(f"{defaults.warehouse}/{folder_name(entry.name)}", entry.base)
        seconds = entry.params.get("lock-timeout", str(LOCK_TIMEOUT))
        try:
            lock_timeout = float(seconds)
        except ValueError:
            lock_timeout = 0.0
        if not 0.1 <= lock_timeout <= 3600:
            raise ConfigurationError(f"lock-timeout is {seconds!r}; write seconds from 0.1 to 3600, such as 30.")
        return cls(entry.name, entry.required("url"), entry.default_database, warehouse, lock_timeout)

    def stores(self) -> tuple[PostgresStore]:
        variable = re.sub(r"\W", "_", f"DYNAMIC_TABLES_PASSWORD_{self.name.upper()}", flags=re.ASCII)
        password = self._server.password
        passwords = {variable: password} if password is not None else {}
        return (PostgresStore(self.name, self._server, passwords, self._warehouse, self._lock_timeout),)

    def dataset_names(self, path: ObjectPath, location: str | None) -> tuple[DatasetName, ...]:  # noqa: ARG002 - it is the server
        named = TableName.parse(path.name)
        return (DatasetName(self._server.dataset_namespace, f"{path.database}.{named.schema}.{named.table}"),)

    def open(self) -> None:
        """Connect once, so that an unavailable server is detected here."""
        self.list_databases()

    def close(self) -> None:
        self.release()

    def release(self) -> None:
        """Release the snapshots that sources were bound to."""
        self._server.close()

    def list_databases(self) -> list[str]:
        return list_databases(self._server, self.default_database)

    def get_database(self, database: str) -> CatalogDatabase:
        with self._server.connected(self.default_database) as opened:
            rows = opened.rows(_DATABASE, {"name": database})
        if not rows:
            raise no_database(self.name, database)
        return CatalogDatabase(comment=rows[0].comment)

    def _create_database(self, database: str, value: CatalogDatabase) -> None:  # noqa: ARG002 - the server's administrator creates it
        if not self.database_exists(database):
            raise UnsupportedError(
                f"Server of catalog {self.name} has no database {database}, and none is made here: run CREATE DATABASE there, "
                f"or name one of {', '.join(self.list_databases())}."
            )
        raise database_taken(self.name, database)

    def _alter_database(self, database: str, value: CatalogDatabase) -> None:  # noqa: ARG002
        raise self._unsupported("changing databases")

    def _drop_database(self, database: str, *, cascade: bool) -> None:  # noqa: ARG002
        raise self._unsupported("dropping databases")

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`; views are tables here, as Spark reads both."""
        self.get_database(database)
        with self._server.connected(database) as opened:
            return sorted({*(table.listed for table in list_tables(opened)), *Entries(opened).dynamic()})

    def list_dynamic_tables(self, database: str) -> list[str]:
        return list(self.get_dynamic_tables(database))

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        """See :meth:`ReadableCatalog.get_dynamic_tables`; columns are those of the entries."""
        self.get_database(database)
        with self._server.connected(database) as opened:
            return Entries(opened).dynamic()

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`; PostgreSQL has no versions."""
        if not self.database_exists(path.database):
            raise no_table(self.name, path)
        with self._server.connected(path.database) as database:
            table = self._own(database, path) or self._foreign(database, path)
        if version is not None and version != getattr(table, "snapshot", None):
            raise no_version(self.name, path, version)
        return table

    def _own(self, opened: OpenDatabase, path: ObjectPath) -> OwnTable | None:
        """Return a table with its current columns; ``None`` when it was not created by this package."""
        name = _named(path)
        entry = Entries(opened).get(name) if name is not None else None
        if entry is None or name is None:
            return None
        table = find_table(opened, str(name))
        if table is None:
            return entry
        columns, location = columns_of(opened, table), self._server.jdbc_url(path.database)
        if isinstance(entry, CatalogTable):
            keys = latest_partition_keys(opened, name)
            return replace(entry, columns=columns, location=location, comment=table.comment, partition_keys=keys)
        return replace(entry, columns=columns, location=location, snapshot=latest_snapshot(opened, name))

    def _foreign(self, database: OpenDatabase, path: ObjectPath) -> CatalogTable:
        """Return a table or view that is not managed by this package."""
        table = find_table(database, path.name)
        if table is None:
            raise no_table(self.name, path)
        return CatalogTable(
            columns_of(database, table),
            comment=table.comment,
            format="jdbc",
            location=self._server.jdbc_url(path.database),
            options={"dbtable": table.quoted},
        )

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        wanted = spec or {}
        keys = partition_keys(self.name, path, self.get_table(path), wanted)
        return self._partitions(path, keys, wanted)

    def _partitions(self, path: ObjectPath, keys: Sequence[str], wanted: PartitionSpec) -> list[CatalogPartition]:
        """Return the partitions of a dynamic table that have rows and match ``wanted``, ordered by their values.

        :param keys: its partition keys. A table that does not have these columns yet has no partitions.
        """
        name = TableName.parse(path.name)
        with self._server.connected(path.database) as opened:
            table = find_table(opened, str(name))
            if table is None or not set(keys) <= {column.name for column in columns_of(opened, table)}:
                return []
            opened.run("SET LOCAL DateStyle = ISO")  # the format of partition values
            values = ", ".join(f"coalesce({quote(key)}::text, {literal(NULL_PARTITION)})" for key in keys)
            counted = opened.rows(f"SELECT ARRAY[{values}] AS of, count(*) AS rows FROM {name.quoted} GROUP BY 1 ORDER BY 1")
        found = [(dict(zip(keys, row.of, strict=True)), row.rows) for row in counted]
        return [
            CatalogPartition(spec, statistics=TableStatistics(rows)) for spec, rows in found if wanted.items() <= spec.items()
        ]

    def table_exists(self, path: ObjectPath) -> bool:
        if not self.database_exists(path.database):
            return False
        with self._server.connected(path.database) as database:
            return self._own(database, path) is not None or find_table(database, path.name) is not None

    def _create_table(self, path: ObjectPath, table: AnyTable) -> None:
        """Create the entry; the first refresh creates the physical table."""
        self.get_database(path.database)
        if not isinstance(table, CatalogDynamicTable) or table.format != _FORMAT:
            kind = f"tables of format {table.format}" if isinstance(table, CatalogDynamicTable) else f"a {type(table).__name__}"
            raise UnsupportedError(
                f"Catalog {self.name} cannot hold {kind}: what is not refreshed here is made in PostgreSQL itself, and what "
                f"is has format: {_FORMAT}."
            )
        name = TableName.parse(path.name)
        make_own_tables(self._server, path.database, name)
        with self._changing(path, name) as opened:
            lock_commits(opened, name)  # a concurrent commit may be creating the table
            entries = Entries(opened)
            entries.clear(name)
            if find_table(opened, str(name)) is not None or entries.get(name) is not None:
                raise table_taken(self.name, path)
            entries.put(name, table)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        self._check_database(path)
        name = _named(path)
        if name is None:
            raise no_table(self.name, path)
        with self._changing(path, name) as opened:
            entries = Entries(opened)
            before = self._own_entry(opened, path, name)
            after = change(before)
            if not isinstance(after, type(before)):
                raise other_kind(self.name, path, before, after)
            entries.put(name, after)
        return before

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:  # noqa: ARG002 - its entry is there
        """See :meth:`ReadableWritableCatalog.adopt_table`: only for a refreshed table that another client recreated."""
        self._check_database(path)
        name = _named(path)
        if name is None:
            raise no_table(self.name, path)
        with self._changing(path, name) as opened:
            lock_commits(opened, name)
            if find_table(opened, str(name)) is None:
                raise no_table(self.name, path)
            entry = Entries(opened).get(name, is_changed=True)
            if isinstance(entry, CatalogTable):
                raise UnsupportedError(
                    f"{path} was made by CREATE TABLE AS; drop it first, or choose another name for the table."
                )
            if entry is not None:
                if is_made_here(opened, name):
                    return False
                tie_commits(opened, name)
            if not is_made_here(opened, name):
                raise UnsupportedError(
                    f"{path} was not made by a refresh, and catalog {self.name} adopts only tables that replace a refreshed "
                    "table; choose another name for the table, or rename this one."
                )
        return True

    def _rename_table(self, path: ObjectPath, new_name: str) -> None:
        """Rename a table and its entry; dependent objects keep depending on the table."""
        self._check_database(path)
        name = _named(path)
        renamed = TableName.parse(new_name)
        if name is None:
            raise no_table(self.name, path)
        if name.schema != renamed.schema:
            raise UnsupportedError(
                f"{path} stays in schema {name.schema}; name it {TableName(name.schema, renamed.table).listed}."
            )
        with self._changing(path, name) as opened:
            for locked in sorted({name, renamed}, key=str):  # in a fixed order, to avoid deadlocks
                lock_commits(opened, locked)
            self._own_entry(opened, path, name)
            Entries(opened).clear(renamed)
            if Entries(opened).get(renamed) is not None or find_table(opened, str(renamed)) is not None:
                raise table_taken(self.name, ObjectPath(path.database, new_name))
            if find_table(opened, str(name)) is not None:
                self._check_made_here(opened, path, name)
                opened.run(f"ALTER TABLE {name.quoted} RENAME TO {quote(renamed.table)}")
            rename_commits(opened, name, renamed)
            Entries(opened).rename(name, renamed)

    def _drop_table(self, path: ObjectPath) -> None:
        """Drop a table and its entry; the rows are deleted, unless another client recreated the table.

        :raises CatalogError: when another object, which the message names, depends on it.
        """
        self._check_database(path)
        name = _named(path)
        if name is None:
            raise no_table(self.name, path)
        try:
            with self._changing(path, name) as opened:
                lock_commits(opened, name)  # before its row, in the same order as table creation
                self._own_entry(opened, path, name)
                if is_made_here(opened, name):
                    opened.run(f"DROP TABLE {name.quoted}")
                forget_commits(opened, name)
                Entries(opened).remove(name)
        except PostgresError as error:
            if error.sqlstate != _DEPENDENT:
                raise
            raise CatalogError(f"{path} is not dropped: {'; '.join(error.detail.splitlines())}. Drop that first.") from error

    def _check_database(self, path: ObjectPath) -> None:
        if not self.database_exists(path.database):
            raise no_table(self.name, path)

    def _check_made_here(self, opened: OpenDatabase, path: ObjectPath, name: TableName) -> None:
        if latest_snapshot(opened, name) is not None and not is_made_here(opened, name):
            raise CatalogError(
                f"{path} is not renamed: another user dropped it and made another table of that name. Rename or drop that one "
                f"in PostgreSQL first, or adopt it: dynamic-tables adopt {path}."
            )

    def _own_entry(self, opened: OpenDatabase, path: ObjectPath, name: TableName) -> OwnTable:
        """Return the entry of a table of this catalog, locked.

        :raises UnsupportedError: if the table was made in PostgreSQL.
        """
        if (entry := Entries(opened).get(name, is_changed=True)) is not None:
            return entry
        if find_table(opened, str(name)) is not None:
            raise UnsupportedError(f"{path} was made in PostgreSQL and not through catalog {self.name}; change it there.")
        raise no_table(self.name, path)

    @contextmanager
    def _changing(self, path: ObjectPath, name: TableName) -> Iterator[OpenDatabase]:
        """Transaction with a lock timeout.

        :raises ConflictError: names the session that holds the lock.
        """
        with (
            named_holders(self._server, path.database, name, "Changing it", ConflictError),
            self._server.transaction(path.database, self._lock_timeout) as opened,
        ):
            yield opened
