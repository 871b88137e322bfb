"""Catalogs that can also be changed (FLIP-30); what holds for all catalogs is said in ``catalog.base``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError


class ReadableWritableCatalog(ReadableCatalog):
    """A catalog that can also be changed."""

    publishes_drafts: bool = False
    """Whether :meth:`publish_draft` and :meth:`discard_draft` keep their promises, so that a table can be made of a query."""

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
        """Drop a database; with ``cascade``, all that it holds as well.

        :raises DatabaseNotFoundError: when it is missing.
        :raises NotEmptyError: when it holds anything and ``cascade`` is false.
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
        try:
            self.change_table(path, lambda _: table)
        except TableNotFoundError:
            if not ignore_if_not_exists:
                raise

    def check_path(self, path: ObjectPath) -> None:
        """Check that a new table may have that name, in a database that may be new, too; nothing is asked for.

        :raises UnsupportedError: when the catalog would change one of the names or cannot hold it.
        """

    @abstractmethod
    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the metadata of a table, dynamic table or view by what is made of it, in one step: nothing that others write
        meanwhile is lost.

        :param change: gives metadata of the same kind. It is called again when others wrote, so it only looks at what it gets;
            of columns, location and snapshot that may be older than what commits wrote.
        :return: the metadata before.
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
        """Rename a table, dynamic table or view within its database.

        :raises TableNotFoundError: when it is missing.
        :raises TableAlreadyExistsError: when the new name is taken.
        """

    def publish_draft(self, draft: ObjectPath, name: str) -> None:
        """Give a table that is being made the name by which others find it, in one step.

        Once the table has that name, whoever calls again only lets go of what is left of the draft.

        :raises TableNotFoundError: when there is no such draft, or it was discarded.
        :raises TableAlreadyExistsError: when the name is taken, also since a moment ago; what has it stays.
        """
        self.rename_table(draft, name)

    def discard_draft(self, draft: ObjectPath, name: str) -> None:
        """Give a draft another name, by which nobody publishes it, also not whoever is about to.

        :raises TableNotFoundError: when there is no such draft any more, maybe because it was published.
        :raises TableAlreadyExistsError: when something else has the name.
        """
        self.rename_table(draft, name)

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
        """Replace the metadata of a partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
        """
        raise self._unsupported("changing partitions")

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a partition; the data files stay.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
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

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """Replace the size of a table or, with ``spec``, of one of its partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        raise self._unsupported("changing statistics")

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """Replace the statistics of all columns of a table.

        :raises TableNotFoundError: when the table is missing.
        """
        raise self._unsupported("changing statistics")

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"Catalog {self.name} ({type(self).__name__}) does not support {what}.")
