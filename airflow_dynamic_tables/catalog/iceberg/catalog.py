"""An Iceberg catalog of others: its Iceberg tables, and dynamic tables that are ordinary Iceberg tables to every other engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults
from airflow_dynamic_tables.catalog.iceberg.databases import IcebergDatabases
from airflow_dynamic_tables.catalog.iceberg.metadata import column_statistics_of, partitions_of, statistics_of
from airflow_dynamic_tables.catalog.iceberg.properties import server_of
from airflow_dynamic_tables.catalog.iceberg.session import Session
from airflow_dynamic_tables.catalog.iceberg.tables import IcebergTables
from airflow_dynamic_tables.catalog.specs import partition_keys
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.iceberg.servers import Server
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


class IcebergCatalog(ReadableWritableCatalog):
    """Namespaces and Iceberg tables of a REST catalog, a Hive metastore, Glue or a database.

    Partitions and statistics are those of the tables' own metadata and cannot be changed here; views and functions are not kept.

    :param server: how to reach it.
    """

    def __init__(self, name: str, server: Server, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.renames_drafts = server.traits.renames_at_once
        self._session = Session(server)
        self._databases = IcebergDatabases(self._session)
        self._tables = IcebergTables(self._session)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:  # noqa: ARG003 - it needs none
        """See :meth:`ReadableCatalog.from_entry`."""
        return cls(entry.name, server_of(entry), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and make sure that the default database exists."""
        self._databases.create(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Let go of connections."""
        self._session.close()

    def stores(self) -> tuple[IcebergStore]:
        """See :meth:`ReadableCatalog.stores`."""
        return (self._tables.store(),)

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return self._databases.names()

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        return self._databases.get(database)

    def database_exists(self, database: str) -> bool:
        """See :meth:`ReadableCatalog.database_exists`."""
        return self._databases.exists(database)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        self._databases.create(database, value, ignore_if_exists=ignore_if_exists)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        self._databases.alter(database, value, ignore_if_not_exists=ignore_if_not_exists)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        self._databases.drop(database, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        return self._tables.names(database)

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return [*self._tables.dynamic(database)]

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        """See :meth:`ReadableCatalog.get_dynamic_tables`."""
        return self._tables.dynamic(database)

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`."""
        return self._tables.get(path, version)

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        return self._tables.exists(path)

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        self._tables.create(path, table, ignore_if_exists=ignore_if_exists)

    def check_path(self, path: ObjectPath) -> None:
        """See :meth:`ReadableWritableCatalog.check_path`."""
        self._session.check_name("database", path.database)
        self._session.check_name("table", path.name)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """See :meth:`ReadableWritableCatalog.change_table`."""
        return self._tables.change(path, change)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """See :meth:`ReadableWritableCatalog.adopt_table`."""
        return self._tables.adopt(path, table)

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        self._tables.rename(path, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        self._tables.drop(path, ignore_if_not_exists=ignore_if_not_exists)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`."""
        wanted: Mapping[str, str] = spec or {}
        keys = partition_keys(self.name, path, self._tables.get(path), wanted)
        return partitions_of(self._tables.load(path), keys, wanted)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """See :meth:`ReadableCatalog.get_table_statistics`."""
        return statistics_of(self._tables.load(path)) if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """See :meth:`ReadableCatalog.get_column_statistics`."""
        return column_statistics_of(self._tables.load(path))
