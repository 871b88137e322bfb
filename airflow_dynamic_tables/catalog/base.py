"""Catalogs: what they hold and what they can do (FLIP-30).

Names are case-sensitive and may hold any character. ``ignore_if_exists`` / ``ignore_if_not_exists`` turn exactly that
error into "nothing happened"; a missing database is always an error on create. What a catalog cannot do raises
:class:`~airflow_dynamic_tables.exceptions.UnsupportedError`, which is what the methods here do until a catalog overrides
them. Every method may raise :class:`~airflow_dynamic_tables.exceptions.CatalogUnavailableError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    DatabaseAlreadyExistsError,
    DatabaseNotFoundError,
    NotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)

PartitionSpec = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database: a comment and properties."""

    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table that something else fills: how to read it is in ``format``, ``location`` and ``options``."""

    columns: tuple[Column, ...] = ()
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    format: str = "iceberg"
    location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


class JobState(StrEnum):
    """State of the job or workflow that refreshes a dynamic table."""

    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class RefreshHandler:
    """Which job or workflow refreshes a dynamic table (seed: RefreshJobHandler).

    ``job_detail`` is ``{"schedulerType", "endpoint", "workflowId"}`` in FULL and INCREMENTAL mode and
    ``{"clusterType", "clusterId", "jobId"}`` in CONTINUOUS mode.
    """

    actual_refresh_mode: RefreshMode
    job_state: JobState = JobState.INITIALIZING
    job_detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogDynamicTable:
    """A table whose content is defined by a query and kept fresh (seed: CatalogDynamicTable).

    ``freshness`` is normalised text such as ``1 day``; ``declared_refresh_mode`` may be AUTO, the handler has the actual
    one. ``snapshot`` is the format's id of the current version, ``None`` before the first commit.
    """

    columns: tuple[Column, ...]
    original_query: str
    expanded_query: str
    freshness: str
    declared_refresh_mode: RefreshMode
    refresh_handler: RefreshHandler
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    format: str = "iceberg"
    location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None

    @property
    def is_partitioned(self) -> bool:
        """Whether the table has partition keys."""
        return bool(self.partition_keys)

    def copy(self, options: Mapping[str, str]) -> CatalogDynamicTable:
        """The same table with other options."""
        return replace(self, options=dict(options))


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view: its text as written and with every name fully qualified."""

    original_query: str
    expanded_query: str
    columns: tuple[Column, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function: ``language`` is ``java`` (``name`` a class) or ``python`` (``name`` is ``module:callable``)."""

    name: str
    language: str = "java"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """One partition of a table; ``spec`` has exactly the table's partition keys."""

    spec: PartitionSpec
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Size of a table or partition; ``None`` means unknown."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column; ``None`` means unknown. ``minimum`` and ``maximum`` are text."""

    nulls: int | None = None
    distinct: int | None = None
    minimum: str | None = None
    maximum: str | None = None


AnyTable = CatalogTable | CatalogDynamicTable | CatalogView


class ReadableCatalog(ABC):
    """What every catalog can do."""

    def __init__(self, name: str, default_database: str = "default") -> None:
        self.name = name
        self.default_database = default_database

    def open(self) -> None:
        """Connect; idempotent. Every other method may be called only between ``open`` and ``close``."""

    def close(self) -> None:
        """Let go of connections; idempotent."""

    def upgrade(self) -> None:
        """Bring the schema of its own state to this release, before ``open``; idempotent. Most catalogs have none."""

    @abstractmethod
    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""

    @abstractmethod
    def get_database(self, database: str) -> CatalogDatabase:
        """One database.

        :raises DatabaseNotFoundError: when there is none of that name.
        """

    def database_exists(self, database: str) -> bool:
        """Whether there is a database of that name."""
        return database in self.list_databases()

    @abstractmethod
    def list_tables(self, database: str) -> list[str]:
        """Names of tables, dynamic tables and views of a database, sorted.

        :raises DatabaseNotFoundError: when the database is missing.
        """

    def list_dynamic_tables(self, database: str) -> list[str]:
        """Names of the dynamic tables of a database, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def list_views(self, database: str) -> list[str]:
        """Names of the views of a database, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    @abstractmethod
    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """One table, dynamic table or view; with ``version``, its metadata as of that snapshot.

        :raises TableNotFoundError: when it, its database or that version is missing.
        """

    @abstractmethod
    def table_exists(self, path: ObjectPath) -> bool:
        """Whether there is a table, dynamic table or view of that name."""

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """Specs of the partitions that agree with ``spec``, sorted.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or ``spec`` has an unknown key.
        """
        raise self._unsupported("partitions")

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """One partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
        """
        raise self._unsupported("partitions")

    def list_functions(self, database: str) -> list[str]:
        """Names of the functions of a database, sorted.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        raise self._unsupported("functions")

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """One function.

        :raises FunctionNotFoundError: when it or its database is missing.
        """
        raise self._unsupported("functions")

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Statistics of a table or of one of its partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        raise self._unsupported("statistics")

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Statistics by column name; columns without any are left out.

        :raises TableNotFoundError: when the table is missing.
        """
        raise self._unsupported("statistics")

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"Catalog {self.name} ({type(self).__name__}) does not support {what}.")

    def _no_database(self, database: str) -> DatabaseNotFoundError:
        return DatabaseNotFoundError(f"Database {database} does not exist in catalog {self.name}.")

    def _database_exists_already(self, database: str) -> DatabaseAlreadyExistsError:
        return DatabaseAlreadyExistsError(f"Database {database} already exists in catalog {self.name}.")

    def _not_empty(self, database: str) -> NotEmptyError:
        return NotEmptyError(f"Database {database} in catalog {self.name} is not empty.")

    def _no_table(self, path: ObjectPath) -> TableNotFoundError:
        return TableNotFoundError(f"Table (or view) {path} does not exist in catalog {self.name}.")

    def _table_exists_already(self, path: ObjectPath) -> TableAlreadyExistsError:
        return TableAlreadyExistsError(f"Table (or view) {path} already exists in catalog {self.name}.")

    def _other_kind(self, path: ObjectPath, found: AnyTable, new: AnyTable) -> CatalogError:
        kinds = f"{type(found).__name__} cannot become a {type(new).__name__}"
        return CatalogError(f"{path} in catalog {self.name}: a {kinds}.")


class ReadableWritableCatalog(ReadableCatalog):
    """A catalog that can also be changed."""

    @abstractmethod
    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """:raises DatabaseAlreadyExistsError: when the name is taken."""

    @abstractmethod
    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """:raises DatabaseNotFoundError: when it is missing."""

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """
        :raises DatabaseNotFoundError: when it is missing.
        :raises DatabaseAlreadyExistsError: when the new name is taken.
        """
        raise self._unsupported("renaming databases")

    @abstractmethod
    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """
        :raises DatabaseNotFoundError: when it is missing.
        :raises NotEmptyError: when it holds anything and ``cascade`` is false.
        """

    @abstractmethod
    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """Create a table, dynamic table or view.

        :raises DatabaseNotFoundError: when the database is missing, even with ``ignore_if_exists``.
        :raises TableAlreadyExistsError: when the name is taken.
        """

    @abstractmethod
    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the metadata of a table, dynamic table or view by other metadata of the same kind.

        :raises TableNotFoundError: when it is missing.
        :raises CatalogError: when the kinds differ.
        """

    @abstractmethod
    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """
        :raises TableNotFoundError: when it is missing.
        :raises TableAlreadyExistsError: when the new name is taken.
        """

    @abstractmethod
    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a table, dynamic table or view; the data files stay.

        :raises TableNotFoundError: when it is missing.
        """

    def create_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_exists: bool = False) -> None:
        """
        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or the spec is not its full key set.
        :raises PartitionAlreadyExistsError: when the partition exists.
        """
        raise self._unsupported("changing partitions")

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """:raises PartitionNotFoundError: for every problem, as FLIP-30 has it."""
        raise self._unsupported("changing partitions")

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """:raises PartitionNotFoundError: for every problem, as FLIP-30 has it."""
        raise self._unsupported("changing partitions")

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """
        :raises DatabaseNotFoundError: when the database is missing.
        :raises FunctionAlreadyExistsError: when the name is taken.
        """
        raise self._unsupported("functions")

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """:raises FunctionNotFoundError: when it is missing."""
        raise self._unsupported("functions")

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """
        :raises FunctionNotFoundError: when it is missing.
        :raises FunctionAlreadyExistsError: when the new name is taken.
        """
        raise self._unsupported("functions")

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """:raises FunctionNotFoundError: when it is missing."""
        raise self._unsupported("functions")

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """
        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        raise self._unsupported("statistics")

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """:raises TableNotFoundError: when the table is missing."""
        raise self._unsupported("statistics")
