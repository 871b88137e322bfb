"""The Hive metastore catalog, and its functions."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass
from typing import Any, Self

from hive_metastore.ttypes import Function, FunctionType, ResourceType, ResourceUri, Table

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogDefaults, CatalogEntry, function_taken, no_function
from airflow_dynamic_tables.catalog.composite import CatalogOfParts
from airflow_dynamic_tables.catalog.hive.partitions import HivePartitions
from airflow_dynamic_tables.catalog.hive.session import MAX_DATABASE_NAME, MAX_NAME, HiveDatabases, HiveSession, is_legal
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.values import (
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import PREFIX
from airflow_dynamic_tables.clients.stores import EntryStore, MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import AlreadyExistsError, FunctionNotFoundError, NotFoundError

_OURS = PREFIX.replace(".", ":")
"""URI prefix of the resource that holds what Hive has no field for."""


@dataclass(frozen=True, slots=True)
class HiveFunctions:
    """Functions by name, in lower case."""

    session: HiveSession
    databases: HiveDatabases

    def names(self, database: str) -> list[str]:
        """Return the names of the functions of a database, sorted."""
        self.databases.load(database)
        return sorted(self.session.call("get_functions", database, "*"))

    def get(self, path: ObjectPath) -> CatalogFunction:
        """Return a function."""
        return _from_hive(self._load(path))

    def exists(self, path: ObjectPath) -> bool:
        """Return whether a function exists."""
        try:
            self._load(path)
        except FunctionNotFoundError:
            return False
        return True

    def create(self, path: ObjectPath, function: CatalogFunction) -> None:
        """Create a function."""
        self.databases.load(path.database)
        self.session.check_name("function", path.name.lower(), MAX_NAME)
        try:
            self.session.call("create_function", _to_hive(path, function))
        except AlreadyExistsError as error:
            raise function_taken(self.session.catalog, path) from error

    def alter(self, path: ObjectPath, function: CatalogFunction) -> None:
        """Replace a function. Not atomic: the function is missing for a moment."""
        self._load(path)
        # The metastore's own alter_function does not change the jars.
        self.session.call("drop_function", path.database, path.name.lower())
        self.session.call("create_function", _to_hive(path, function))

    def rename(self, path: ObjectPath, new_name: str) -> None:
        """Rename a function."""
        function = self._load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("function", new_name.lower(), MAX_NAME)
        if self.exists(renamed):
            raise function_taken(self.session.catalog, renamed)
        function.functionName = new_name.lower()
        self.session.call("alter_function", path.database, path.name.lower(), function)

    def drop(self, path: ObjectPath) -> None:
        """Drop a function."""
        self._load(path)
        self.session.call("drop_function", path.database, path.name.lower())

    def _load(self, path: ObjectPath) -> Function:
        if not is_legal(path.database, path.name.lower()):
            raise no_function(self.session.catalog, path)
        try:
            return self.session.call("get_function", path.database, path.name.lower())
        except NotFoundError as error:
            raise no_function(self.session.catalog, path) from error


def _to_hive(path: ObjectPath, function: CatalogFunction) -> Function:
    """Convert a function: a Java class with its jars in Hive's fields, everything else in a resource of this package."""
    properties = dict(function.properties)
    resources = [ResourceUri(ResourceType.JAR, jar) for jar in properties.pop("jars", "").split(",") if jar]
    if properties or function.language != "java":
        ours = json.dumps({"language": function.language, "properties": properties}, sort_keys=True)
        resources.append(ResourceUri(ResourceType.FILE, _OURS + ours))
    return Function(
        functionName=path.name.lower(),
        dbName=path.database,
        className=function.name,
        ownerName=getpass.getuser(),
        ownerType=1,
        createTime=0,
        functionType=FunctionType.JAVA,
        resourceUris=resources,
    )


def _from_hive(stored: Function) -> CatalogFunction:
    uris = [resource.uri for resource in stored.resourceUris or ()]
    ours: dict[str, Any] = next((json.loads(uri.removeprefix(_OURS)) for uri in uris if uri.startswith(_OURS)), {})
    jars = ",".join(uri for uri in uris if not uri.startswith(_OURS))
    properties = {**ours.get("properties", {}), **({"jars": jars} if jars else {})}
    return CatalogFunction(stored.className, ours.get("language", "java"), properties)


class HiveCatalog(CatalogOfParts):
    """Databases, tables, views, functions, partitions and statistics of a Hive metastore (2.3 and later), one part for each.

    The metastore folds names to lower case and accepts only letters, digits and underscores. A name that it would change is
    rejected on creation, and is never found.

    :param metastore: connections to it.
    :param warehouse: URI of the folder for new databases; by default the metastore's own.
    """

    publishes_drafts = True

    _tables: HiveTables
    _partitions: HivePartitions

    def __init__(self, name: str, metastore: Metastore, warehouse: str | None = None, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.metastore = metastore
        session = self._session = HiveSession(name, metastore)
        self._databases = HiveDatabases(session, warehouse.rstrip("/") if warehouse is not None else None)
        self._functions = HiveFunctions(session, self._databases)
        self._tables = HiveTables(session, self._databases)
        self._partitions = HivePartitions(session, self._tables)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:  # noqa: ARG003 - it needs none
        metastore = Metastore(entry.required("uri"))
        return cls(entry.name, metastore, entry.folder("warehouse"), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and create the default database if it is missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Close connections."""
        self.metastore.close()

    def stores(self) -> tuple[MetastoreStore, EntryStore]:
        return MetastoreStore(self.name, self.metastore), EntryStore(self.name, self._tables.location)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        return self._tables.adopt(path, table)

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        return self._partitions.specs(path, spec)

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        return self._partitions.get(path, spec)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        statistics = self._tables.statistics(path)
        return statistics if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        return self._tables.column_statistics(path)

    def load(self, path: ObjectPath) -> Table:
        """Return a table as stored in the metastore.

        :raises TableNotFoundError: when it or its database is missing.
        """
        return self._tables.load(path)

    def check_path(self, path: ObjectPath) -> None:
        self._session.check_name("database", path.database, MAX_DATABASE_NAME)
        self._session.check_name("table", path.name, MAX_NAME)
