"""A catalog in a Hive metastore: dynamic tables are ordinary Hive tables to every other engine."""

from __future__ import annotations

from typing import Self

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults
from airflow_dynamic_tables.catalog.hive.databases import HiveDatabases
from airflow_dynamic_tables.catalog.hive.functions import HiveFunctions
from airflow_dynamic_tables.catalog.hive.partitions import HivePartitions
from airflow_dynamic_tables.catalog.hive.session import MAX_DATABASE_NAME, MAX_NAME, Session
from airflow_dynamic_tables.catalog.hive.statistics import HiveStatistics
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.parts import CatalogOfParts
from airflow_dynamic_tables.catalog.values import (
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
)
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import EntryStore, MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec


class HiveCatalog(CatalogOfParts):
    """Databases, tables, views, functions, partitions and statistics of a Hive metastore (2.3 and later), a part for each.

    The metastore folds names to lower case and takes letters, digits and underscores only. A name that it would change is
    refused, and is never found.

    :param metastore: connections to it.
    :param warehouse: URI of the folder that new databases are placed in; by default the metastore's own.
    """

    publishes_drafts = True

    _tables: HiveTables
    _partitions: HivePartitions

    def __init__(self, name: str, metastore: Metastore, warehouse: str | None = None, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.metastore = metastore
        session = self._session = Session(name, metastore)
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

    def stores(self) -> tuple[MetastoreStore, EntryStore]:
        """See :meth:`ReadableCatalog.stores`."""
        return MetastoreStore(self.name, self.metastore), EntryStore(self.name, self._tables.location)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """See :meth:`ReadableWritableCatalog.adopt_table`."""
        return self._tables.adopt(path, table)

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """See :meth:`ReadableCatalog.list_partitions`."""
        return self._partitions.specs(path, spec)

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """See :meth:`ReadableCatalog.get_partition`."""
        return self._partitions.get(path, spec)

    def load(self, path: ObjectPath) -> Table:
        """A table as the metastore has it.

        :raises TableNotFoundError: when it or its database is missing.
        """
        return self._tables.load(path)

    def check_path(self, path: ObjectPath) -> None:
        """See :meth:`ReadableWritableCatalog.check_path`."""
        self._session.check_name("database", path.database, MAX_DATABASE_NAME)
        self._session.check_name("table", path.name, MAX_NAME)
