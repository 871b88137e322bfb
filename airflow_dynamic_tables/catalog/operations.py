"""Base class of catalogs that implement each operation once, without the flags that ignore missing and existing objects."""

from __future__ import annotations

from abc import abstractmethod

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog, ignoring
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogFunction, CatalogPartition
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


class CatalogOfOperations(ReadableWritableCatalog):
    """Implements ``ignore_if_exists`` and ``ignore_if_not_exists``; the operations themselves always report an error."""

    @abstractmethod
    def _create_database(self, database: str, value: CatalogDatabase) -> None: ...

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        with ignoring(DatabaseAlreadyExistsError, ignore_if_exists):
            self._create_database(database, value)

    @abstractmethod
    def _alter_database(self, database: str, value: CatalogDatabase) -> None: ...

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists):
            self._alter_database(database, value)

    @abstractmethod
    def _drop_database(self, database: str, *, cascade: bool) -> None: ...

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists):
            self._drop_database(database, cascade=cascade)

    @abstractmethod
    def _create_table(self, path: ObjectPath, table: AnyTable) -> None: ...

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        with ignoring(TableAlreadyExistsError, ignore_if_exists):
            self._create_table(path, table)

    @abstractmethod
    def _rename_table(self, path: ObjectPath, new_name: str) -> None: ...

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(TableNotFoundError, ignore_if_not_exists):
            self._rename_table(path, new_name)

    @abstractmethod
    def _drop_table(self, path: ObjectPath) -> None: ...

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(TableNotFoundError, ignore_if_not_exists):
            self._drop_table(path)


class CatalogOfPartitionsAndFunctions(CatalogOfOperations):
    """The same for catalogs that can change partitions and functions."""

    @abstractmethod
    def _alter_partition(self, path: ObjectPath, partition: CatalogPartition) -> None: ...

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(PartitionNotFoundError, ignore_if_not_exists):
            self._alter_partition(path, partition)

    @abstractmethod
    def _drop_partition(self, path: ObjectPath, spec: PartitionSpec) -> None: ...

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(PartitionNotFoundError, ignore_if_not_exists):
            self._drop_partition(path, spec)

    @abstractmethod
    def _create_function(self, path: ObjectPath, function: CatalogFunction) -> None: ...

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        with ignoring(FunctionAlreadyExistsError, ignore_if_exists):
            self._create_function(path, function)

    @abstractmethod
    def _alter_function(self, path: ObjectPath, function: CatalogFunction) -> None: ...

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._alter_function(path, function)

    @abstractmethod
    def _rename_function(self, path: ObjectPath, new_name: str) -> None: ...

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._rename_function(path, new_name)

    @abstractmethod
    def _drop_function(self, path: ObjectPath) -> None: ...

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        with ignoring(FunctionNotFoundError, ignore_if_not_exists):
            self._drop_function(path)
