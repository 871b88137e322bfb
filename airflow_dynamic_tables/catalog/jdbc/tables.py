"""Tables of a PostgreSQL database that are made here: what becomes of them, and of the real ones that hold their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.errors import no_table, other_kind, table_taken
from airflow_dynamic_tables.catalog.jdbc.entries import Entries, OwnTable
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogPartition, CatalogTable, TableStatistics
from airflow_dynamic_tables.clients.postgres.locks import lock_commits, named_holders
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.own_tables import (
    forget_commits,
    is_made_here,
    latest_partition_keys,
    latest_snapshot,
    make_own_tables,
    rename_commits,
    tie_commits,
)
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer, literal, quote
from airflow_dynamic_tables.clients.postgres.tables import columns_of, find_table
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, PartitionSpec
from airflow_dynamic_tables.exceptions import CatalogError, ConflictError, UnsupportedError

_FORMAT = "jdbc"

_DEPENDENT = "2BP01"
"""SQLSTATE of what cannot be dropped because something depends on it."""


@dataclass(frozen=True, slots=True)
class JdbcTables:
    """The tables of a server's databases that are made here, in the catalog of that name.

    ``lock_timeout`` are the seconds that others are waited for.
    """

    catalog: str
    server: PostgresServer
    lock_timeout: float

    def get(self, opened: OpenDatabase, path: ObjectPath) -> OwnTable | None:
        """One table, with the columns that it has by now; ``None`` when it was not made here."""
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
        """The partitions of a dynamic table with rows that agree with ``wanted``, in order of their values; the server counts.

        :param keys: its partition keys. A table that does not have them yet has no partition of them.
        """
        name = TableName.parse(path.name)
        with self.server.connected(path.database) as opened:
            table = find_table(opened, str(name))
            if table is None or not set(keys) <= {column.name for column in columns_of(opened, table)}:
                return []
            opened.run("SET LOCAL DateStyle = ISO")  # as partitions are named
            values = ", ".join(f"coalesce({quote(key)}::text, {literal(NULL_PARTITION)})" for key in keys)
            counted = opened.rows(f"SELECT ARRAY[{values}] AS of, count(*) AS rows FROM {name.quoted} GROUP BY 1 ORDER BY 1")
        found = [(dict(zip(keys, row.of, strict=True)), row.rows) for row in counted]
        return [
            CatalogPartition(spec, statistics=TableStatistics(rows)) for spec, rows in found if wanted.items() <= spec.items()
        ]

    def create(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`; its first refresh makes the real table."""
        if not isinstance(table, CatalogDynamicTable) or table.format != _FORMAT:
            kind = f"tables of format {table.format}" if isinstance(table, CatalogDynamicTable) else f"a {type(table).__name__}"
            raise UnsupportedError(
                f"Catalog {self.catalog} cannot hold {kind}: what is not refreshed here is made in PostgreSQL itself, and what "
                f"is has format: {_FORMAT}."
            )
        name = TableName.parse(path.name)
        make_own_tables(self.server, path.database, name)
        with self._changing(path, name) as opened:
            lock_commits(opened, name)  # one of them may make the table just now
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
        """See :meth:`ReadableWritableCatalog.rename_table`; what depends on the table stays with it."""
        name = _named(path)
        renamed = TableName.parse(new_name)
        if name is not None and name.schema != renamed.schema:
            raise UnsupportedError(
                f"{path} stays in schema {name.schema}; name it {TableName(name.schema, renamed.table).listed}."
            )
        with self._changing(path, name or renamed) as opened:
            for locked in sorted({name or renamed, renamed}, key=str):  # in one order, so that two do not wait for each other
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
        """See :meth:`ReadableWritableCatalog.drop_table`; the rows go with the table, unless somebody else made it anew.

        :raises CatalogError: when something depends on it, whose name it says.
        """
        name = _named(path)
        if name is None:
            if ignore_if_not_exists:
                return
            raise no_table(self.catalog, path)
        try:
            with self._changing(path, name) as opened:
                lock_commits(opened, name)  # before its row, as whoever makes one
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
        """See :meth:`ReadableWritableCatalog.adopt_table`: only what somebody made anew of a table that was refreshed."""
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
                f"{path} is not renamed: somebody dropped the table and made another of that name. Rename or drop that one in "
                f"PostgreSQL first, or adopt it: dynamic-tables adopt {path}."
            )

    def _is_there(self, opened: OpenDatabase, path: ObjectPath, name: TableName, *, ignore: bool) -> bool:
        if Entries(opened).get(name, is_changed=True) is not None:
            return True
        if not ignore:
            self._check_dynamic(opened, path, name)
        return False

    def _check_dynamic(self, opened: OpenDatabase, path: ObjectPath, name: TableName) -> None:
        """Check that a table that has no row is not there at all.

        :raises UnsupportedError: when it is.
        """
        if find_table(opened, str(name)) is not None:
            raise UnsupportedError(f"{path} was made in PostgreSQL and not through catalog {self.catalog}; change it there.")

    @contextmanager
    def _changing(self, path: ObjectPath, name: TableName) -> Iterator[OpenDatabase]:
        """A transaction that waits for others no longer than it should.

        :raises ConflictError: says who keeps it waiting.
        """
        with (
            named_holders(self.server, path.database, name, "Changing it", ConflictError),
            self.server.transaction(path.database, self.lock_timeout) as opened,
        ):
            yield opened


def _named(path: ObjectPath) -> TableName | None:
    """The name of a table of ours; ``None`` when none can have it, so that there is no such table."""
    try:
        return TableName.parse(path.name)
    except UnsupportedError:
        return None
