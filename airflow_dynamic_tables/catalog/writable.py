"""The interface of writable catalogs (FLIP-30), see ``catalog.base`` for readable ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError


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
        try:
            self.change_table(path, lambda _: table)
        except TableNotFoundError:
            if not ignore_if_not_exists:
                raise

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
