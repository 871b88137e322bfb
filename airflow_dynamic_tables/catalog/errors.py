"""What a catalog says of a name that is missing or taken: every error is worded once."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import AnyTable
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec, describe
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    DatabaseAlreadyExistsError,
    DatabaseNotFoundError,
    FunctionAlreadyExistsError,
    FunctionNotFoundError,
    NotEmptyError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)


def no_database(catalog: str, database: str) -> DatabaseNotFoundError:
    """A database is missing."""
    return DatabaseNotFoundError(f"Database {database} does not exist in catalog {catalog}.")


def database_taken(catalog: str, database: str) -> DatabaseAlreadyExistsError:
    """The name of a new database is taken."""
    return DatabaseAlreadyExistsError(f"Database {database} already exists in catalog {catalog}.")


def not_empty(catalog: str, database: str) -> NotEmptyError:
    """A database that is to be dropped holds something."""
    return NotEmptyError(f"Database {database} in catalog {catalog} is not empty.")


def no_table(catalog: str, path: ObjectPath) -> TableNotFoundError:
    """A table, dynamic table or view is missing."""
    return TableNotFoundError(f"Table (or view) {path} does not exist in catalog {catalog}.")


def no_version(catalog: str, path: ObjectPath, version: str) -> TableNotFoundError:
    """A table does not have that version."""
    return TableNotFoundError(f"Table {path} in catalog {catalog} has no version {version}.")


def table_taken(catalog: str, path: ObjectPath) -> TableAlreadyExistsError:
    """The name of a new table, dynamic table or view is taken."""
    return TableAlreadyExistsError(f"Table (or view) {path} already exists in catalog {catalog}.")


def other_kind(catalog: str, path: ObjectPath, old: AnyTable, new: AnyTable) -> CatalogError:
    """A table cannot be altered into another kind of table."""
    return CatalogError(f"{path} in catalog {catalog}: a {type(old).__name__} cannot become a {type(new).__name__}.")


def no_function(catalog: str, path: ObjectPath) -> FunctionNotFoundError:
    """A function is missing."""
    return FunctionNotFoundError(f"Function {path} does not exist in catalog {catalog}.")


def function_taken(catalog: str, path: ObjectPath) -> FunctionAlreadyExistsError:
    """The name of a new function is taken."""
    return FunctionAlreadyExistsError(f"Function {path} already exists in catalog {catalog}.")


def no_partition(catalog: str, path: ObjectPath, spec: PartitionSpec) -> PartitionNotFoundError:
    """A partition, or its table, is missing."""
    return PartitionNotFoundError(f"Partition {describe(spec)} of table {path} in catalog {catalog} does not exist.")


def partition_taken(catalog: str, path: ObjectPath, spec: PartitionSpec) -> PartitionAlreadyExistsError:
    """A new partition is there already."""
    return PartitionAlreadyExistsError(f"Partition {describe(spec)} of table {path} in catalog {catalog} already exists.")
