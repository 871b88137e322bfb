"""A catalog in a SQL database; the physical tables are Iceberg, through PyIceberg's SqlCatalog on the same database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults, absolute_uri
from airflow_dynamic_tables.catalog.sql.databases import SqlDatabases
from airflow_dynamic_tables.catalog.sql.functions import SqlFunctions
from airflow_dynamic_tables.catalog.sql.partitions import SqlPartitions
from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables
from airflow_dynamic_tables.catalog.sql.rows import Store
from airflow_dynamic_tables.catalog.sql.statistics import SqlStatistics
from airflow_dynamic_tables.catalog.sql.tables import SqlTables
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


class SqlCatalog(ReadableWritableCatalog):
    """Databases, tables, dynamic tables, views and functions in ``dt_`` tables; each subject is a part of its own.

    A table that somebody else made through PyIceberg in the same catalog is listed and read too. Partitions and statistics
    of Iceberg tables are those of their own metadata and cannot be changed here, others are kept as rows.

    :param warehouse: URI of the folder new Iceberg tables are placed in.
    """

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._database = database
        self._physical = PhysicalTables(name, database, warehouse)
        store = Store(name, database)
        self._databases = SqlDatabases(store)
        self._functions = SqlFunctions(store)
        self._tables = SqlTables(store, self._physical)
        self._partitions = SqlPartitions(self._tables)
        self._statistics = SqlStatistics(self._tables, self._partitions)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:
        """See :meth:`ReadableCatalog.from_entry`; without parameters it is in the embedded database."""
        url = _absolute_url(entry.params.get("url", defaults.database_url), entry.base)
        database = Database(url, private_files=defaults.private_files)
        warehouse = entry.folder("warehouse") or absolute_uri(f"{defaults.warehouse}/{folder_name(entry.name)}", entry.base)
        return cls(entry.name, database, warehouse, entry.default_database or DEFAULT_DATABASE)

    @property
    def warehouse(self) -> str:
        """URI of the folder new Iceberg tables are placed in."""
        return self._physical.warehouse

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        return self._physical.iceberg

    def open(self) -> None:
        """Connect, and make sure that the default database and PyIceberg's own tables exist."""
        self._databases.create(self.default_database, CatalogDatabase(), ignore_if_exists=True)
        self._physical.open()

    def close(self) -> None:
        """Let go of connections."""
        self._physical.close()
        self._database.close()

    def upgrade(self) -> None:
        """See :meth:`ReadableCatalog.upgrade`."""
        self._database.upgrade()

    def stores(self) -> tuple[IcebergStore, FolderStore]:
        """See :meth:`ReadableCatalog.stores`."""
        return self._physical.stores()

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

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`; the files of its tables stay where they are."""
        self._databases.rename(database, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        self._databases.drop(database, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        return self._tables.names(database)

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return self._tables.names_of(database, "dynamic_table")

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._tables.names_of(database, "view")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`."""
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

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        self._tables.rename(path, new_name, ignore_if_not_exists=ignore_if_not_exists)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        self._tables.drop(path, ignore_if_not_exists=ignore_if_not_exists)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`."""
        return self._partitions.find(path, spec)

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
        """See :meth:`ReadableWritableCatalog.alter_function`."""
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


def _absolute_url(url: str, base: Path) -> str:
    """The URL of a database; the file of an SQLite database starts from ``base``."""
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url
