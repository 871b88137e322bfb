"""Entries of the tables that this package creates in a PostgreSQL database: one row for each, in the schema of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from airflow_dynamic_tables.catalog.base import no_table, other_kind, table_taken
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
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
    lock_commits,
    make_own_tables,
    named_holders,
    no_right_on_own,
    rename_commits,
    tie_commits,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSpec
from airflow_dynamic_tables.exceptions import CatalogError, ConflictError, UnsupportedError

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


@dataclass(frozen=True, slots=True)
class JdbcTables:
    """The tables of this package in the databases of a server, for the catalog of that name.

    ``lock_timeout`` is the time to wait for locks, in seconds.
    """

    catalog: str
    server: PostgresServer
    lock_timeout: float

    def get(self, opened: OpenDatabase, path: ObjectPath) -> OwnTable | None:
        """Return a table with its current columns; ``None`` when it was not created by this package."""
        name = _named(path)
        entry = Entries(opened).get(name) if name is not None else None
        if entry is None or name is None:
            return None
        table = find_table(opened, str(name))
        if table is None:
            return entry
        columns, location = columns_of(opened, table), self.server.jdbc_url(path.database)
        if isinstance(entry, CatalogTable):
            keys = latest_partition_keys(opened, name)
            return replace(entry, columns=columns, location=location, comment=table.comment, partition_keys=keys)
        return replace(entry, columns=columns, location=location, snapshot=latest_snapshot(opened, name))

    def partitions(self, path: ObjectPath, keys: Sequence[str], wanted: PartitionSpec) -> list[CatalogPartition]:
        """Return the partitions of a dynamic table that have rows and match ``wanted``, ordered by their values.

        :param keys: its partition keys. A table that does not have these columns yet has no partitions.
        """
        name = TableName.parse(path.name)
        with self.server.connected(path.database) as opened:
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

    def create(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`; the first refresh creates the physical table."""
        if not isinstance(table, CatalogDynamicTable) or table.format != _FORMAT:
            kind = f"tables of format {table.format}" if isinstance(table, CatalogDynamicTable) else f"a {type(table).__name__}"
            raise UnsupportedError(
                f"Catalog {self.catalog} cannot hold {kind}: what is not refreshed here is made in PostgreSQL itself, and what "
                f"is has format: {_FORMAT}."
            )
        name = TableName.parse(path.name)
        make_own_tables(self.server, path.database, name)
        with self._changing(path, name) as opened:
            lock_commits(opened, name)  # a concurrent commit may be creating the table
            entries = Entries(opened)
            entries.clear(name)
            is_new = find_table(opened, str(name)) is None and entries.get(name) is None
            if is_new:
                entries.put(name, table)
        if not is_new and not ignore_if_exists:
            raise table_taken(self.catalog, path)

    def change(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """See :meth:`ReadableWritableCatalog.change_table`."""
        name = _named(path)
        if name is None:
            raise no_table(self.catalog, path)
        with self._changing(path, name) as opened:
            entries = Entries(opened)
            before = entries.get(name, is_changed=True)
            if before is None:
                self._check_dynamic(opened, path, name)
                raise no_table(self.catalog, path)
            after = change(before)
            if not isinstance(after, type(before)):
                raise other_kind(self.catalog, path, before, after)
            entries.put(name, after)
        return before

    def rename(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`; dependent objects keep depending on the table."""
        name = _named(path)
        renamed = TableName.parse(new_name)
        if name is not None and name.schema != renamed.schema:
            raise UnsupportedError(
                f"{path} stays in schema {name.schema}; name it {TableName(name.schema, renamed.table).listed}."
            )
        with self._changing(path, name or renamed) as opened:
            for locked in sorted({name or renamed, renamed}, key=str):  # in a fixed order, to avoid deadlocks
                lock_commits(opened, locked)
            if name is None or not self._is_there(opened, path, name, ignore=ignore_if_not_exists):
                if ignore_if_not_exists:
                    return
                raise no_table(self.catalog, path)
            Entries(opened).clear(renamed)
            if Entries(opened).get(renamed) is not None or find_table(opened, str(renamed)) is not None:
                raise table_taken(self.catalog, ObjectPath(path.database, new_name))
            if find_table(opened, str(name)) is not None:
                self._check_made_here(opened, path, name)
                opened.run(f"ALTER TABLE {name.quoted} RENAME TO {quote(renamed.table)}")
            rename_commits(opened, name, renamed)
            Entries(opened).rename(name, renamed)

    def drop(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`; the rows are deleted, unless another client recreated the table.

        :raises CatalogError: when another object, which the message names, depends on it.
        """
        name = _named(path)
        if name is None:
            if ignore_if_not_exists:
                return
            raise no_table(self.catalog, path)
        try:
            with self._changing(path, name) as opened:
                lock_commits(opened, name)  # before its row, in the same order as table creation
                if not self._is_there(opened, path, name, ignore=ignore_if_not_exists):
                    if ignore_if_not_exists:
                        return
                    raise no_table(self.catalog, path)
                if is_made_here(opened, name):
                    opened.run(f"DROP TABLE {name.quoted}")
                forget_commits(opened, name)
                Entries(opened).remove(name)
        except PostgresError as error:
            if error.sqlstate != _DEPENDENT:
                raise
            raise CatalogError(f"{path} is not dropped: {'; '.join(error.detail.splitlines())}. Drop that first.") from error

    def adopt(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableWritableCatalog.adopt_table`: only for a refreshed table that another client recreated."""
        name = _named(path)
        if name is None:
            raise no_table(self.catalog, path)
        with self._changing(path, name) as opened:
            lock_commits(opened, name)
            if find_table(opened, str(name)) is None:
                raise no_table(self.catalog, path)
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
                    f"{path} is of no refresh, and catalog {self.catalog} adopts only what somebody made anew of a table that "
                    "was refreshed; choose another name for the table, or rename this one."
                )
        return True

    def _check_made_here(self, opened: OpenDatabase, path: ObjectPath, name: TableName) -> None:
        if latest_snapshot(opened, name) is not None and not is_made_here(opened, name):
            raise CatalogError(
                f"{path} is not renamed: another user dropped it and made another table of that name. Rename or drop that one "
                f"in PostgreSQL first, or adopt it: dynamic-tables adopt {path}."
            )

    def _is_there(self, opened: OpenDatabase, path: ObjectPath, name: TableName, *, ignore: bool) -> bool:
        if Entries(opened).get(name, is_changed=True) is not None:
            return True
        if not ignore:
            self._check_dynamic(opened, path, name)
        return False

    def _check_dynamic(self, opened: OpenDatabase, path: ObjectPath, name: TableName) -> None:
        """Check that a table without an entry does not exist at all.

        :raises UnsupportedError: when it does.
        """
        if find_table(opened, str(name)) is not None:
            raise UnsupportedError(f"{path} was made in PostgreSQL and not through catalog {self.catalog}; change it there.")

    @contextmanager
    def _changing(self, path: ObjectPath, name: TableName) -> Iterator[OpenDatabase]:
        """Transaction with a lock timeout.

        :raises ConflictError: names the session that holds the lock.
        """
        with (
            named_holders(self.server, path.database, name, "Changing it", ConflictError),
            self.server.transaction(path.database, self.lock_timeout) as opened,
        ):
            yield opened


def _named(path: ObjectPath) -> TableName | None:
    """Return the table name of a path; ``None`` when no table of this package can have it, and so none exists."""
    try:
        return TableName.parse(path.name)
    except UnsupportedError:
        return None
