"""External Iceberg catalog; its dynamic tables are ordinary Iceberg tables to other engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogDefaults, CatalogEntry, partition_keys
from airflow_dynamic_tables.catalog.composite import CatalogOfTables
from airflow_dynamic_tables.catalog.iceberg.encoding import server_of
from airflow_dynamic_tables.catalog.iceberg.metadata import column_statistics_of, partitions_of, statistics_of
from airflow_dynamic_tables.catalog.iceberg.session import IcebergDatabases, IcebergSession
from airflow_dynamic_tables.catalog.iceberg.tables import IcebergTables
from airflow_dynamic_tables.catalog.values import (
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec


class IcebergCatalog(CatalogOfTables):
    """Namespaces and Iceberg tables of a REST catalog, a Hive metastore, Glue or a database.

    Partitions and statistics come from the tables' own metadata and cannot be changed here; views and functions are
    unsupported.

    :param server: how to reach it.
    """

    publishes_drafts = True

    _databases: IcebergDatabases
    _tables: IcebergTables

    def __init__(self, name: str, server: IcebergServer, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._session = IcebergSession(server)
        self._databases = IcebergDatabases(self._session)
        self._tables = IcebergTables(self._session)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:  # noqa: ARG003 - it needs none
        return cls(entry.name, server_of(entry), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and create the default database if it is missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Close connections."""
        self._session.close()

    def stores(self) -> tuple[IcebergStore]:
        return (self._tables.store(),)

    def database_exists(self, database: str) -> bool:
        return self._databases.exists(database)

    def check_path(self, path: ObjectPath) -> None:
        self._session.check_name("database", path.database)
        self._session.check_name("table", path.name)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        return self._tables.adopt(path, table)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        wanted: Mapping[str, str] = spec or {}
        keys = partition_keys(self.name, path, self._tables.get(path), wanted)
        return partitions_of(self._tables.load(path), keys, wanted)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        return statistics_of(self._tables.load(path)) if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        return column_statistics_of(self._tables.load(path))
