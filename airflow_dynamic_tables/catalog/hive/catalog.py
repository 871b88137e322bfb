"""A catalog in a Hive metastore: dynamic tables are ordinary Hive tables to every other engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults
from airflow_dynamic_tables.catalog.hive.databases import HiveDatabases
from airflow_dynamic_tables.catalog.hive.functions import HiveFunctions
from airflow_dynamic_tables.catalog.hive.partitions import HivePartitions
from airflow_dynamic_tables.catalog.hive.session import Session
from airflow_dynamic_tables.catalog.hive.statistics import HiveStatistics
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


class HiveCatalog(ReadableWritableCatalog):
    """Databases, tables, views, functions, partitions and statistics of a Hive metastore (2.3 and later), a part for each.

    The metastore folds names to lower case and takes letters, digits and underscores only. A name that it would change is
    refused, and is never found.

    :param metastore: connections to it.
    :param warehouse: URI of the folder that new databases are placed in; by default the metastore's own.
    """

    def __init__(self, name: str, metastore: Metastore, warehouse: str | None = None, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.metastore = metastore
        session = Session(name, metastore)
        self._databases = HiveDatabases(session, warehouse.rstrip("/") if warehouse is not None else None)
        self._functions = HiveFunctions(session, self._databases)
        self._tables = HiveTables(session, self._databases)
        self._partitions = HivePartitions(session, self._tables)
        self._statistics = HiveStatistics(session, self._tables, self._partitions)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:  # noqa: ARG003 - it needs none
        """See :meth:`ReadableCatalog.from_entry`."""
        metastore = Metastore(entry.required("uri"))
        return cls(entry.name, metastore, entry.folder("warehouse"), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and make sure that the default database exists."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Let go of connections."""
        self.metastore.close()

    def stores(self) -> tuple[MetastoreStore]:
        """See :meth:`ReadableCatalog.stores`."""
        return (MetastoreStore(self.name, self.metastore),)

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return self._databases.names()

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        return self._databases.get(database)

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
        return self._tables.dynamic_names(database)

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._tables.view_names(database)

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`; the metastore has the current version only."""
        return self._tables.get(path, version)

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        return self._tables.exists(path)

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        self._tables.create(path, table, ignore_if_exists=ignore_if_exists)

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`."""
        self._tables.alter(path, table, ignore_if_not_exists=ignore_if_not_exists)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """See :meth:`ReadableWritableCatalog.adopt_table`."""
        return self._tables.adopt(path, table)

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        self._tables.rename(path, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        self._tables.drop(path, ignore_if_not_exists=ignore_if_not_exists)

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """See :meth:`ReadableCatalog.list_partitions`."""
        return self._partitions.specs(path, spec)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`."""
        return self._partitions.find(path, spec)

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """See :meth:`ReadableCatalog.get_partition`."""
        return self._partitions.get(path, spec)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """See :meth:`ReadableWritableCatalog.create_partitions`."""
        self._partitions.create(path, partitions, ignore_if_exists=ignore_if_exists)

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_partition`."""
        self._partitions.alter(path, partition, ignore_if_not_exists=ignore_if_not_exists)

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_partition`."""
        self._partitions.drop(path, spec, ignore_if_not_exists=ignore_if_not_exists)

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_functions`."""
        return self._functions.names(database)

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """See :meth:`ReadableCatalog.get_function`."""
        return self._functions.get(path)

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_function`."""
        self._functions.create(path, function, ignore_if_exists=ignore_if_exists)

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_function`; for a moment there is none."""
        self._functions.alter(path, function, ignore_if_not_exists=ignore_if_not_exists)

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_function`."""
        self._functions.rename(path, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_function`."""
        self._functions.drop(path, ignore_if_not_exists=ignore_if_not_exists)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """See :meth:`ReadableCatalog.get_table_statistics`."""
        return self._statistics.of_table(path, spec)

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """See :meth:`ReadableCatalog.get_column_statistics`."""
        return self._statistics.of_columns(path)

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table_statistics`."""
        self._statistics.alter_table(path, statistics, spec)

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """See :meth:`ReadableWritableCatalog.alter_column_statistics`."""
        self._statistics.alter_columns(path, statistics)

    def load(self, path: ObjectPath) -> Table:
        """A table as the metastore has it.

        :raises TableNotFoundError: when it or its database is missing.
        """
        return self._tables.load(path)
