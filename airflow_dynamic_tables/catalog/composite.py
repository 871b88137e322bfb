"""Base classes of catalogs composed of one part per subject: databases, tables, partitions, functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog, ignoring
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import (
    DatabaseAlreadyExistsError,
    DatabaseNotFoundError,
    FunctionAlreadyExistsError,
    FunctionNotFoundError,
    PartitionNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)


class _Databases(Protocol):
    def names(self) -> list[str]: ...
    def get(self, database: str) -> CatalogDatabase: ...
    def create(self, database: str, value: CatalogDatabase) -> None: ...
    def alter(self, database: str, value: CatalogDatabase) -> None: ...
    def drop(self, database: str, *, cascade: bool = False) -> None: ...


class _Tables(Protocol):
    def names(self, database: str) -> list[str]: ...
    def dynamic_names(self, database: str) -> list[str]: ...
    def dynamic(self, database: str) -> dict[str, CatalogDynamicTable]: ...
    def get(self, path: ObjectPath, version: str | None = None) -> AnyTable: ...
    def exists(self, path: ObjectPath) -> bool: ...
    def create(self, path: ObjectPath, table: AnyTable) -> None: ...
    def change(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable: ...
    def rename(self, path: ObjectPath, new_name: str) -> None: ...
    def drop(self, path: ObjectPath) -> None: ...


class _TablesAndViews(_Tables, Protocol):
    def view_names(self, database: str) -> list[str]: ...


class _Partitions(Protocol):
    def find(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]: ...
    def create(self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False) -> None: ...
    def alter(self, path: ObjectPath, partition: CatalogPartition) -> None: ...
    def drop(self, path: ObjectPath, spec: PartitionSpec) -> None: ...


class _Functions(Protocol):
    def names(self, database: str) -> list[str]: ...
    def get(self, path: ObjectPath) -> CatalogFunction: ...
    def create(self, path: ObjectPath, function: CatalogFunction) -> None: ...
    def alter(self, path: ObjectPath, function: CatalogFunction) -> None: ...
    def rename(self, path: ObjectPath, new_name: str) -> None: ...
    def drop(self, path: ObjectPath) -> None: ...


class CatalogOfTables(ReadableWritableCatalog):
    """Delegates databases and tables to one part each, which the constructor of the subclass creates."""

    _databases: _Databases
    _tables: _Tables

    def list_databases(self) -> list[str]:
        return self._databases.names()

    def get_database(self, database: str) -> CatalogDatabase:
        return self._databases.get(database)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        with ignoring(DatabaseAlreadyExistsError, ignore_if_exists):
            self._databases.create(database, value)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists):
            self._databases.alter(database, value)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists):
            self._databases.drop(database, cascade=cascade)

    def list_tables(self, database: str) -> list[str]:
        return self._tables.names(database)

    def list_dynamic_tables(self, database: str) -> list[str]:
        return self._tables.dynamic_names(database)

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        return self._tables.dynamic(database)

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        return self._tables.get(path, version)

    def table_exists(self, path: ObjectPath) -> bool:
        return self._tables.exists(path)

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        with ignoring(TableAlreadyExistsError, ignore_if_exists):
            self._tables.create(path, table)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        return self._tables.change(path, change)

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(TableNotFoundError, ignore_if_not_exists):
            self._tables.rename(path, new_name)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(TableNotFoundError, ignore_if_not_exists):
            self._tables.drop(path)


class CatalogOfParts(CatalogOfTables):
    """Also delegates views, partitions and functions to parts."""

    _tables: _TablesAndViews
    _partitions: _Partitions
    _functions: _Functions

    def list_views(self, database: str) -> list[str]:
        return self._tables.view_names(database)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        return self._partitions.find(path, spec)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        self._partitions.create(path, partitions, ignore_if_exists=ignore_if_exists)

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(PartitionNotFoundError, ignore_if_not_exists):
            self._partitions.alter(path, partition)

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(PartitionNotFoundError, ignore_if_not_exists):
            self._partitions.drop(path, spec)

    def list_functions(self, database: str) -> list[str]:
        return self._functions.names(database)

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        return self._functions.get(path)

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        with ignoring(FunctionAlreadyExistsError, ignore_if_exists):
            self._functions.create(path, function)

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._functions.alter(path, function)

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._functions.rename(path, new_name)

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._functions.drop(path)
