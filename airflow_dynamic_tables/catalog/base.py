"""The interface of catalogs (FLIP-30), their configuration entries, and the errors that all catalogs share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, Self

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.connections import Connections, environment_connections
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.lineage import DatasetName, dataset_at
from airflow_dynamic_tables.core.partitions import PartitionSpec, check_spec, describe
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConfigurationError,
    DatabaseAlreadyExistsError,
    DatabaseNotFoundError,
    FunctionAlreadyExistsError,
    FunctionNotFoundError,
    InvalidPartitionError,
    NotEmptyError,
    PartitionAlreadyExistsError,
    PartitionNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.redaction import has_password


def no_database(catalog: str, database: str) -> DatabaseNotFoundError:
    """Return the error for a missing database."""
    return DatabaseNotFoundError(f"Database {database} does not exist in catalog {catalog}.")


def database_taken(catalog: str, database: str) -> DatabaseAlreadyExistsError:
    """Return the error for a new database whose name is taken."""
    return DatabaseAlreadyExistsError(f"Database {database} already exists in catalog {catalog}.")


def not_empty(catalog: str, database: str) -> NotEmptyError:
    """Return the error for dropping a database that is not empty."""
    return NotEmptyError(f"Database {database} in catalog {catalog} is not empty.")


def no_table(catalog: str, path: ObjectPath) -> TableNotFoundError:
    """Return the error for a missing table, dynamic table or view."""
    return TableNotFoundError(f"Table (or view) {path} does not exist in catalog {catalog}.")


def no_version(catalog: str, path: ObjectPath, version: str) -> TableNotFoundError:
    """Return the error for a table without that version."""
    return TableNotFoundError(f"Table {path} in catalog {catalog} has no version {version}.")


def table_taken(catalog: str, path: ObjectPath) -> TableAlreadyExistsError:
    """Return the error for a new table, dynamic table or view whose name is taken."""
    return TableAlreadyExistsError(f"Table (or view) {path} already exists in catalog {catalog}.")


def other_kind(catalog: str, path: ObjectPath, old: AnyTable, new: AnyTable) -> CatalogError:
    """Return the error for altering a table into another kind of table."""
    return CatalogError(f"{path} in catalog {catalog}: a {type(old).__name__} cannot become a {type(new).__name__}.")


def no_function(catalog: str, path: ObjectPath) -> FunctionNotFoundError:
    """Return the error for a missing function."""
    return FunctionNotFoundError(f"Function {path} does not exist in catalog {catalog}.")


def function_taken(catalog: str, path: ObjectPath) -> FunctionAlreadyExistsError:
    """Return the error for a new function whose name is taken."""
    return FunctionAlreadyExistsError(f"Function {path} already exists in catalog {catalog}.")


def no_partition(catalog: str, path: ObjectPath, spec: PartitionSpec) -> PartitionNotFoundError:
    """Return the error for a partition that is missing, or whose table is missing."""
    return PartitionNotFoundError(f"Partition {describe(spec)} of table {path} in catalog {catalog} does not exist.")


def partition_taken(catalog: str, path: ObjectPath, spec: PartitionSpec) -> PartitionAlreadyExistsError:
    """Return the error for a new partition that already exists."""
    return PartitionAlreadyExistsError(f"Partition {describe(spec)} of table {path} in catalog {catalog} already exists.")


def partition_keys(catalog: str, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> tuple[str, ...]:
    """Return the table's partition keys, after checking that they include those of a (partial) spec.

    :raises InvalidPartitionError: when the table is not partitioned, or the spec has an unknown key.
    """
    keys = () if isinstance(table, CatalogView) else table.partition_keys
    if not keys:
        raise InvalidPartitionError(f"Table {path} in catalog {catalog} is not partitioned.")
    if unknown := sorted(set(spec) - set(keys)):
        raise InvalidPartitionError(
            f"Table {path} in catalog {catalog} has no partition key {unknown[0]}; its keys are {', '.join(keys)}."
        )
    return keys


def full_spec(catalog: str, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> dict[str, str]:
    """Return the spec of one partition in the order of the table's keys.

    :raises InvalidPartitionError: when it does not have exactly these keys.
    """
    keys = partition_keys(catalog, path, table, {})
    try:
        check_spec(spec, keys)
    except ValueError as error:
        raise InvalidPartitionError(f"Table {path} in catalog {catalog}: {error}.") from error
    return {key: spec[key] for key in keys}


DEFAULT_DATABASE = "default"


@dataclass(frozen=True, slots=True)
class CatalogDefaults:
    """Defaults of a ``sql`` catalog without its own ``url`` or ``warehouse``; its warehouse is a subfolder of this one.

    ``connections`` looks up the Airflow connections that catalogs name by ``conn-id``. ``private_files`` makes new files of
    SQLite accessible only to their owner.
    """

    database_url: str
    warehouse: str
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ))
    private_files: bool = True


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A catalog as declared; relative paths in ``params`` are resolved against ``base``.

    ``place`` is the position of the declaration: path, line and column; empty for an embedded catalog.
    """

    name: str
    type: str = "sql"
    is_default: bool = False
    default_database: str | None = None
    conn_id: str | None = None
    params: Mapping[str, str] = field(default_factory=dict, repr=False)
    base: Path = Path()
    place: str | None = None

    def required(self, param: str) -> str:
        """Return a required connection parameter.

        :raises ConfigurationError: when neither the entry nor its connection has it.
        """
        if param not in self.params:
            raise ConfigurationError(f"needs connection parameter {param!r}, or a 'conn-id' whose connection has a host.")
        return self.params[param]

    def folder(self, param: str) -> str | None:
        """Return the URI of the folder that a parameter gives as path or URI; ``None`` when it is missing."""
        return absolute_uri(self.params[param], self.base) if param in self.params else None


def absolute_uri(folder: str, base: Path) -> str:
    """Return the URI of a folder; a path is resolved against ``base``, a URI is unchanged.

    :raises ConfigurationError: when it contains a password.
    """
    if has_password(folder):
        raise ConfigurationError("A warehouse may not hold a password in its URI: all locations begin with it.")
    return folder if "://" in folder else f"file://{(base / folder).resolve()}"


P = ParamSpec("P")


def is_found(missing: type[CatalogError], get: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Return whether a function finds an object, instead of reporting that it is missing."""
    try:
        get(*args, **kwargs)
    except missing:
        return False
    return True


class ReadableCatalog(ABC):
    """Interface that every catalog implements."""

    def __init__(self, name: str, default_database: str = "default") -> None:
        self.name = name
        self.default_database = default_database

    @classmethod
    @abstractmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:
        """Create a catalog from its entry, with secrets in its parameters; connects to nothing.

        :raises ConfigurationError: when a parameter is missing or wrong.
        """

    def open(self) -> None:
        """Connect; idempotent. Every other method may be called only between ``open`` and ``close``."""

    def close(self) -> None:
        """Close connections; idempotent."""

    def release(self) -> None:
        """Release what holds the state of sources for a job; idempotent."""

    def upgrade(self) -> None:
        """Upgrade the schema of the catalog's own state, if any, to this release, before ``open``; idempotent."""

    def stores(self) -> tuple[Store, ...]:
        """Return the stores that can hold its tables, for the formats that support them; empty when it stores only metadata."""
        return ()

    def dataset_names(self, path: ObjectPath, location: str | None) -> tuple[DatasetName, ...]:
        """Return the names that Spark's listener of OpenLineage gives a table: the one of its data, then its symlinks.

        :param location: that of its data, if known.
        """
        return (dataset_at(location),) if location is not None else ()

    def reading_many(self) -> AbstractContextManager[None]:
        """Context for reading many tables.

        A catalog that stores the locations of all tables in one place queries them only once within it.
        """
        return nullcontext()

    @abstractmethod
    def list_databases(self) -> list[str]:
        """Return the names of all databases, sorted."""

    @abstractmethod
    def get_database(self, database: str) -> CatalogDatabase:
        """Return a database.

        :raises DatabaseNotFoundError: when it is missing.
        """

    def database_exists(self, database: str) -> bool:
        """Return whether a database exists."""
        return database in self.list_databases()

    @abstractmethod
    def list_tables(self, database: str) -> list[str]:
        """Return the names of tables, dynamic tables and views of a database, sorted.

        :raises DatabaseNotFoundError: when the database is missing.
        """

    def list_dynamic_tables(self, database: str) -> list[str]:
        """Return the names of the dynamic tables of a database, sorted; empty in a catalog that does not support them.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        """Return the registered dynamic tables of a database by name, sorted, for reading many at once.

        Fields that commits write (columns, partition keys, location, snapshot) may be missing or older than in
        :meth:`get_table`. Catalogs with many tables load them in bulk; a table that is dropped concurrently is omitted.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        tables: dict[str, CatalogDynamicTable] = {}
        for name in self.list_dynamic_tables(database):
            with suppress(TableNotFoundError):
                table = self.get_table(ObjectPath(database, name))
                if isinstance(table, CatalogDynamicTable):
                    tables[name] = table
        return tables

    def list_views(self, database: str) -> list[str]:
        """Return the names of the views of a database, sorted; empty in a catalog that does not support them.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    @abstractmethod
    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """Return a table, dynamic table or view; with ``version``, its metadata as of that snapshot.

        :raises TableNotFoundError: when it, its database or that version is missing.
        """

    @abstractmethod
    def table_exists(self, path: ObjectPath) -> bool:
        """Return whether a table, dynamic table or view exists."""

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """Return the partitions that match ``spec``, ordered by their values; in one query, regardless of their number.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or ``spec`` has an unknown key.
        """
        partition_keys(self.name, path, self.get_table(path), spec or {})
        return []

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """Return the specs of :meth:`get_partitions`."""
        return [dict(partition.spec) for partition in self.get_partitions(path, spec)]

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """Return a partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 requires.
        """
        try:
            candidates = self.get_partitions(path, spec)
        except (TableNotFoundError, InvalidPartitionError) as error:
            raise no_partition(self.name, path, spec) from error
        for partition in candidates:
            if partition.spec == spec:
                return partition
        raise no_partition(self.name, path, spec)

    def partition_exists(self, path: ObjectPath, spec: PartitionSpec) -> bool:
        """Return whether a partition exists; false when its table is missing."""
        return is_found(PartitionNotFoundError, self.get_partition, path, spec)

    def list_functions(self, database: str) -> list[str]:
        """Return the names of the functions of a database in lower case, sorted; empty if the catalog does not support them.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """Return a function.

        :raises FunctionNotFoundError: when it or its database is missing.
        """
        raise no_function(self.name, path)

    def function_exists(self, path: ObjectPath) -> bool:
        """Return whether a function exists."""
        return is_found(FunctionNotFoundError, self.get_function, path)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Return the statistics of a table or of one of its partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        self.get_table(path)
        return TableStatistics() if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Return statistics by column name; columns without any are omitted.

        :raises TableNotFoundError: when the table is missing.
        """
        self.get_table(path)
        return {}


def ignoring(error: type[CatalogError], is_ignored: bool) -> AbstractContextManager[None]:
    """Context that ignores an error as ``ignore_if_exists`` and ``ignore_if_not_exists`` say."""
    return suppress(error) if is_ignored else nullcontext()


class ReadableWritableCatalog(ReadableCatalog):
    """A catalog that can also be changed."""

    publishes_drafts: bool = False
    """Whether :meth:`publish_draft` and :meth:`discard_draft` are supported, as CREATE TABLE AS requires."""

    @abstractmethod
    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """Create a database without tables.

        :raises DatabaseAlreadyExistsError: when the name is taken.
        """

    @abstractmethod
    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the comment and the properties of a database.

        :raises DatabaseNotFoundError: when it is missing.
        """

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Rename a database; its tables and functions stay in it.

        :raises DatabaseNotFoundError: when it is missing.
        :raises DatabaseAlreadyExistsError: when the new name is taken.
        """
        raise self._unsupported("renaming databases")

    @abstractmethod
    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """Drop a database; with ``cascade``, everything in it as well.

        :raises DatabaseNotFoundError: when it is missing.
        :raises NotEmptyError: when it is not empty and ``cascade`` is false.
        """

    @abstractmethod
    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """Create a table, dynamic table or view.

        :raises DatabaseNotFoundError: when the database is missing, even with ``ignore_if_exists``.
        :raises TableAlreadyExistsError: when the name is taken.
        """

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the metadata of a table, dynamic table or view by other metadata of the same kind.

        :raises TableNotFoundError: when it is missing.
        :raises CatalogError: when the kinds differ.
        """
        with ignoring(TableNotFoundError, ignore_if_not_exists):
            self.change_table(path, lambda _: table)

    def check_path(self, path: ObjectPath) -> None:
        """Check that a new table may have that name; its database may be new, too. Connects to nothing.

        :raises UnsupportedError: when the catalog would change one of the names or cannot hold it.
        """

    @abstractmethod
    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the metadata of a table, dynamic table or view atomically; no concurrent change is lost.

        :param change: returns metadata of the same kind. It is called again after a concurrent change, so it must have no side
            effects. Columns, location and snapshot in its argument may be older than what commits wrote.
        :return: the metadata before.
        :raises TableNotFoundError: when it is missing.
        :raises CatalogError: when the kinds differ.
        """

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """Convert a table created by another system to a dynamic table; its rows remain until a refresh replaces them.

        :return: False when it is a dynamic table already; then it is unchanged.
        :raises TableNotFoundError: when it is missing.
        :raises UnsupportedError: when it cannot be a dynamic table.
        """
        raise self._unsupported("adopting tables")

    @abstractmethod
    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Rename a table, dynamic table or view within its database.

        :raises TableNotFoundError: when it is missing.
        :raises TableAlreadyExistsError: when the new name is taken.
        """

    def publish_draft(self, draft: ObjectPath, name: str) -> None:
        """Rename a draft table to its public name atomically.

        Once the table has that name, repeated calls only remove the rest of the draft.

        :raises TableNotFoundError: when there is no such draft, or it was discarded.
        :raises TableAlreadyExistsError: when the name is taken, also by a concurrent change; the existing table is kept.
        """
        self.rename_table(draft, name)

    def discard_draft(self, draft: ObjectPath, name: str) -> None:
        """Rename a draft so that it cannot be published, not even by a concurrent call of :meth:`publish_draft`.

        :raises TableNotFoundError: when the draft no longer exists, possibly because it was published.
        :raises TableAlreadyExistsError: when the name is taken by another table.
        """
        self.rename_table(draft, name)

    @abstractmethod
    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a table, dynamic table or view; the data files are kept.

        :raises TableNotFoundError: when it is missing.
        """

    def create_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_exists: bool = False) -> None:
        """Create one partition, see :meth:`create_partitions`."""
        self.create_partitions(path, (partition,), ignore_if_exists=ignore_if_exists)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """Create all partitions or, on an error, none.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or a spec does not have exactly its keys.
        :raises PartitionAlreadyExistsError: when a partition exists.
        """
        raise self._unsupported("changing partitions")

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the metadata of a partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 requires.
        """
        raise self._unsupported("changing partitions")

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a partition; the data files are kept.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 requires.
        """
        raise self._unsupported("changing partitions")

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """Create a function.

        :raises DatabaseNotFoundError: when the database is missing.
        :raises FunctionAlreadyExistsError: when the name is taken.
        """
        raise self._unsupported("changing functions")

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """Replace a function by another of the same name.

        :raises FunctionNotFoundError: when it is missing.
        """
        raise self._unsupported("changing functions")

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Rename a function within its database.

        :raises FunctionNotFoundError: when it is missing.
        :raises FunctionAlreadyExistsError: when the new name is taken.
        """
        raise self._unsupported("changing functions")

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a function.

        :raises FunctionNotFoundError: when it is missing.
        """
        raise self._unsupported("changing functions")

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"Catalog {self.name} ({type(self).__name__}) does not support {what}.")
