"""PostgreSQL as a catalog: its databases, their tables and views with columns in Spark's types, and dynamic tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Self

from airflow_dynamic_tables.catalog.base import (
    CatalogDefaults,
    CatalogEntry,
    ReadableWritableCatalog,
    absolute_uri,
    database_taken,
    no_database,
    no_table,
    no_version,
    partition_keys,
)
from airflow_dynamic_tables.catalog.postgres.tables import Entries, JdbcTables
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, CatalogPartition, CatalogTable
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresServer
from airflow_dynamic_tables.clients.postgres.tables import columns_of, find_table, list_databases, list_tables
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import ConfigurationError, UnsupportedError

_DATABASE = "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = %(name)s"

LOCK_TIMEOUT = 30.0
"""Seconds for which a commit waits for locks."""


class JdbcCatalog(ReadableWritableCatalog):
    """The databases of a PostgreSQL server; only dynamic tables can be created.

    :param url: URL of one database of the server, which is the default one.
    :param warehouse: URI of the folder for the small files of refreshes.
    :param lock_timeout: seconds for which commits wait for locks.
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
        self._tables = JdbcTables(name, self._server, lock_timeout)
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
        return (PostgresStore(self.name, self._server, passwords, self._warehouse, self._tables.lock_timeout),)

    def open(self) -> None:
        """Connect once, so that an unavailable server is detected here."""
        self.list_databases()

    def close(self) -> None:
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

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:  # noqa: ARG002
        """See :meth:`ReadableWritableCatalog.create_database`; databases must be created on the server by its administrator."""
        if not self.database_exists(database):
            raise UnsupportedError(
                f"Server of catalog {self.name} has no database {database}, and none is made here: run CREATE DATABASE there, "
                f"or name one of {', '.join(self.list_databases())}."
            )
        if not ignore_if_exists:
            raise database_taken(self.name, database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:  # noqa: ARG002
        """See :meth:`ReadableWritableCatalog.alter_database`; unsupported, databases are altered on the server."""
        raise self._unsupported("changing databases")

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:  # noqa: ARG002
        """See :meth:`ReadableWritableCatalog.drop_database`; unsupported, databases are dropped on the server."""
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
            table = self._tables.get(database, path) or self._foreign(database, path)
        if version is not None and version != getattr(table, "snapshot", None):
            raise no_version(self.name, path, version)
        return table

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
        return self._tables.partitions(path, keys, wanted)

    def table_exists(self, path: ObjectPath) -> bool:
        if not self.database_exists(path.database):
            return False
        with self._server.connected(path.database) as database:
            return self._tables.get(database, path) is not None or find_table(database, path.name) is not None

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        self.get_database(path.database)
        self._tables.create(path, table, ignore_if_exists=ignore_if_exists)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        self._check_database(path)
        return self._tables.change(path, change)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:  # noqa: ARG002 - its entry is there
        self._check_database(path)
        return self._tables.adopt(path)

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        if ignore_if_not_exists and not self.database_exists(path.database):
            return
        self._check_database(path)
        self._tables.rename(path, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`; unlike in other catalogs, the rows are deleted."""
        if ignore_if_not_exists and not self.database_exists(path.database):
            return
        self._check_database(path)
        self._tables.drop(path, ignore_if_not_exists=ignore_if_not_exists)

    def _check_database(self, path: ObjectPath) -> None:
        if not self.database_exists(path.database):
            raise no_table(self.name, path)
