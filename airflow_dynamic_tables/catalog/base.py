"""Catalogs: what they hold and what they can do (FLIP-30).

Names are case-sensitive and may hold any character, except that functions are the same in any case of letters.
``ignore_if_exists`` / ``ignore_if_not_exists`` turn exactly that error into "nothing happened"; a missing database is always
an error on create. Reading what a catalog cannot hold finds nothing; writing it raises
:class:`~airflow_dynamic_tables.exceptions.UnsupportedError`, which is what the methods here do until a catalog overrides
them. Every method may raise :class:`~airflow_dynamic_tables.exceptions.CatalogUnavailableError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

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
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec, check_spec, describe
from airflow_dynamic_tables.exceptions import (
    CatalogError,
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

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """The partitions that agree with ``spec``, in order of their values; one look, however many there are.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or ``spec`` has an unknown key.
        """
        self._partition_keys(path, self.get_table(path), spec or {})
        return []

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """Specs of :meth:`get_partitions`, which see."""
        return [dict(partition.spec) for partition in self.get_partitions(path, spec)]

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """One partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
        """
        try:
            found = self.get_partitions(path, spec)
        except (TableNotFoundError, InvalidPartitionError) as error:
            raise self._no_partition(path, spec) from error
        for partition in found:
            if partition.spec == spec:
                return partition
        raise self._no_partition(path, spec)

    def partition_exists(self, path: ObjectPath, spec: PartitionSpec) -> bool:
        """Whether there is such a partition; not when its table is missing."""
        try:
            self.get_partition(path, spec)
        except PartitionNotFoundError:
            return False
        return True

    def list_functions(self, database: str) -> list[str]:
        """Names of the functions of a database in lower case, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """One function.

        :raises FunctionNotFoundError: when it or its database is missing.
        """
        raise self._no_function(path)

    def function_exists(self, path: ObjectPath) -> bool:
        """Whether there is a function of that name."""
        try:
            self.get_function(path)
        except FunctionNotFoundError:
            return False
        return True

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Statistics of a table or of one of its partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        self.get_table(path)
        return TableStatistics() if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Statistics by column name; columns without any are left out.

        :raises TableNotFoundError: when the table is missing.
        """
        self.get_table(path)
        return {}

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

    def _no_function(self, path: ObjectPath) -> FunctionNotFoundError:
        return FunctionNotFoundError(f"Function {path} does not exist in catalog {self.name}.")

    def _function_exists_already(self, path: ObjectPath) -> FunctionAlreadyExistsError:
        return FunctionAlreadyExistsError(f"Function {path} already exists in catalog {self.name}.")

    def _no_partition(self, path: ObjectPath, spec: PartitionSpec) -> PartitionNotFoundError:
        return PartitionNotFoundError(f"Partition {describe(spec)} of table {path} in catalog {self.name} does not exist.")

    def _partition_exists_already(self, path: ObjectPath, spec: PartitionSpec) -> PartitionAlreadyExistsError:
        return PartitionAlreadyExistsError(f"Partition {describe(spec)} of table {path} in catalog {self.name} already exists.")

    def _partition_keys(self, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> tuple[str, ...]:
        """The table's partition keys, once it is known that it has some, and among them those of a (partial) spec.

        :raises InvalidPartitionError: when not.
        """
        keys = () if isinstance(table, CatalogView) else table.partition_keys
        if not keys:
            raise InvalidPartitionError(f"Table {path} in catalog {self.name} is not partitioned.")
        if unknown := sorted(set(spec) - set(keys)):
            raise InvalidPartitionError(
                f"Table {path} in catalog {self.name} has no partition key {unknown[0]}; its keys are {', '.join(keys)}."
            )
        return keys

    def _full_spec(self, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> dict[str, str]:
        """The spec of one partition in the order of the table's keys.

        :raises InvalidPartitionError: when it does not have exactly these keys.
        """
        keys = self._partition_keys(path, table, {})
        try:
            check_spec(spec, keys)
        except ValueError as error:
            raise InvalidPartitionError(f"Table {path} in catalog {self.name}: {error}.") from error
        return {key: spec[key] for key in keys}

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

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """Make a dynamic table of a table that something else made; its rows stay until a refresh replaces them.

        :return: False when it is a dynamic table already, and stays as it is.
        :raises TableNotFoundError: when it is missing.
        :raises UnsupportedError: when it cannot be a dynamic table.
        """
        raise self._unsupported("adopting tables")

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
        """One of :meth:`create_partitions`, which see."""
        self.create_partitions(path, (partition,), ignore_if_exists=ignore_if_exists)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """Create all of them or, on an error, none.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or a spec is not its full key set.
        :raises PartitionAlreadyExistsError: when a partition exists.
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
        raise self._unsupported("changing functions")

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """:raises FunctionNotFoundError: when it is missing."""
        raise self._unsupported("changing functions")

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """
        :raises FunctionNotFoundError: when it is missing.
        :raises FunctionAlreadyExistsError: when the new name is taken.
        """
        raise self._unsupported("changing functions")

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """:raises FunctionNotFoundError: when it is missing."""
        raise self._unsupported("changing functions")

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """
        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        raise self._unsupported("changing statistics")

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """:raises TableNotFoundError: when the table is missing."""
        raise self._unsupported("changing statistics")
