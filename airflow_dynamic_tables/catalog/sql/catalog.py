"""The ``sql`` catalog, and its databases and functions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import TYPE_CHECKING, Self
from uuid import uuid4
from weakref import finalize

from sqlalchemy import delete, select, update

from airflow_dynamic_tables.catalog.base import (
    DEFAULT_DATABASE,
    CatalogDefaults,
    CatalogEntry,
    absolute_uri,
    database_taken,
    function_taken,
    ignoring,
    no_database,
    no_function,
    not_empty,
)
from airflow_dynamic_tables.catalog.composite import CatalogOfParts
from airflow_dynamic_tables.catalog.sql.rows import FUNCTIONS, NAMESPACES, PARTITIONS, TABLES, RowStore
from airflow_dynamic_tables.catalog.sql.tables import SqlTablePartitions, SqlTables
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import databases
from airflow_dynamic_tables.clients.stores import EntryStore, FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog

    from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables


@dataclass(frozen=True, slots=True)
class SqlDatabases:
    """Databases as rows; renaming or dropping one also applies to its content."""

    store: RowStore

    def names(self) -> list[str]:
        """Return the names of all databases, sorted."""
        with self.store.transaction() as rows:
            return sorted(rows.connection.scalars(select(databases.c.name).where(databases.c.catalog == rows.catalog)))

    def get(self, database: str) -> CatalogDatabase:
        """Return a database."""
        with self.store.transaction() as rows:
            return rows.get_database(database)

    def create(self, database: str, value: CatalogDatabase) -> None:
        """Insert a row."""
        with self.store.transaction() as rows:
            if not rows.insert(databases, {"name": database, "value": asdict(value)}):
                raise database_taken(rows.catalog, database)

    def alter(self, database: str, value: CatalogDatabase) -> None:
        """Replace the value."""
        with self.store.transaction() as rows:
            change = update(databases).where(*rows.of_database(database)).values(value=asdict(value))
            if rows.connection.execute(change).rowcount == 0:
                raise no_database(rows.catalog, database)

    def rename(self, database: str, new_name: str) -> None:
        """Rename a database in all rows; the files of its tables are not moved."""
        with self.store.transaction() as rows:
            if not rows.lock_database(database):
                raise no_database(rows.catalog, database)
            value = asdict(rows.get_database(database))
            if not rows.insert(databases, {"name": new_name, "value": value}):
                raise database_taken(rows.catalog, new_name)

            for register in (*TABLES, PARTITIONS, FUNCTIONS, NAMESPACES):
                move = update(register.table).where(*rows.within(register, database)).values({register.database: new_name})
                rows.connection.execute(move)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))

    def drop(self, database: str, *, cascade: bool = False) -> None:
        """Delete a database and, with ``cascade``, everything in it."""
        with self.store.transaction() as rows:
            if not rows.lock_database(database):
                raise no_database(rows.catalog, database)
            dropped = sum([rows.delete(register, database) for register in (*TABLES, FUNCTIONS)])
            if dropped and not cascade:
                raise not_empty(rows.catalog, database)  # rolls back

            for register in (PARTITIONS, NAMESPACES):
                rows.delete(register, database)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))


@dataclass(frozen=True, slots=True)
class SqlFunctions:
    """Functions as rows, by name in lower case."""

    store: RowStore

    def names(self, database: str) -> list[str]:
        """Return the names of the functions of a database, sorted."""
        with self.store.transaction() as rows:
            rows.get_database(database)
            return sorted(rows.connection.scalars(select(FUNCTIONS.table.c.name).where(*rows.within(FUNCTIONS, database))))

    def get(self, path: ObjectPath) -> CatalogFunction:
        """Return a function."""
        with self.store.transaction() as rows:
            value = rows.connection.scalar(select(FUNCTIONS.table.c.value).where(*rows.at(FUNCTIONS, _folded(path))))
            if value is None:
                raise no_function(rows.catalog, path)
            return CatalogFunction(**value)

    def create(self, path: ObjectPath, function: CatalogFunction) -> None:
        """Insert a row."""
        with self.store.transaction() as rows:
            if not rows.lock_database(path.database):
                raise no_database(rows.catalog, path.database)
            row = {"database": path.database, "name": _folded(path).name, "value": asdict(function)}
            if not rows.insert(FUNCTIONS.table, row):
                raise function_taken(rows.catalog, path)

    def alter(self, path: ObjectPath, function: CatalogFunction) -> None:
        """Replace the value."""
        with self.store.transaction() as rows:
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(value=asdict(function))
            if rows.connection.execute(change).rowcount == 0:
                raise no_function(rows.catalog, path)

    def rename(self, path: ObjectPath, new_name: str) -> None:
        """Rename a function."""
        renamed = _folded(ObjectPath(path.database, new_name))
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            if not rows.exists(FUNCTIONS, _folded(path)):
                raise no_function(rows.catalog, path)
            if rows.exists(FUNCTIONS, renamed):
                raise function_taken(rows.catalog, renamed)
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(name=renamed.name)
            rows.connection.execute(change)

    def drop(self, path: ObjectPath) -> None:
        """Delete the row."""
        with self.store.transaction() as rows:
            if not rows.delete(FUNCTIONS, path.database, _folded(path).name):
                raise no_function(rows.catalog, path)


def _folded(path: ObjectPath) -> ObjectPath:
    """Return the path in lower case: names of functions are case-insensitive."""
    return ObjectPath(path.database, path.name.lower())


class SqlCatalog(CatalogOfParts):
    """Databases, tables, dynamic tables, views and functions in ``dt_`` tables, one part for each subject.

    A table that another client created through PyIceberg in the same catalog is listed and read too. Partitions and statistics
    of Iceberg tables come from their own metadata; partitions of other tables are stored as rows.

    :param warehouse: URI of the folder for new Iceberg tables.
    """

    publishes_drafts = True

    _databases: SqlDatabases
    _tables: SqlTables

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._database = database
        self.warehouse = warehouse
        store = self._store = RowStore(name, database)
        self._databases = SqlDatabases(store)
        self._functions = SqlFunctions(store)
        self._tables = SqlTables(store, warehouse, lambda: self._physical)
        self._partitions = SqlTablePartitions(self._tables)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:
        """See :meth:`ReadableCatalog.from_entry`; without parameters it uses the embedded database."""
        url = _absolute_url(entry.params.get("url", defaults.database_url), entry.base)
        database = Database(url, private_files=defaults.private_files)
        warehouse = entry.folder("warehouse") or absolute_uri(f"{defaults.warehouse}/{folder_name(entry.name)}", entry.base)
        return cls(entry.name, database, warehouse, entry.default_database or DEFAULT_DATABASE)

    @cached_property
    def _physical(self) -> PhysicalTables:
        from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables  # PyIceberg takes 0.3 s to import

        self._store.create_iceberg_tables()
        return PhysicalTables(self.name, self._database, self.warehouse)

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        return self._physical.iceberg

    def open(self) -> None:
        """Connect, and create the default database and PyIceberg's own tables if they are missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)
        self._store.create_iceberg_tables()

    def close(self) -> None:
        """Close connections, and discard PyIceberg's catalog, which uses them."""
        self.__dict__.pop("_physical", None)
        self._database.close()

    def upgrade(self) -> None:
        self._database.upgrade()

    def stores(self) -> tuple[IcebergStore, FolderStore, EntryStore]:
        return (*self._physical.stores(), EntryStore(self.name, self._tables.location))

    def reading_many(self) -> AbstractContextManager[None]:
        return self._physical.reading_many()

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        statistics = self._tables.statistics(path)
        return statistics if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        return self._tables.column_statistics(path)

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`; the files of its tables are not moved."""
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists):
            self._databases.rename(database, new_name)


class MemoryCatalog(SqlCatalog):
    """A ``sql`` catalog in an SQLite database in memory, for tests and dry runs.

    It exists as long as this object. The metadata of its Iceberg tables is in a temporary folder, and no rows are written
    there.
    """

    def __init__(self, name: str, default_database: str = DEFAULT_DATABASE) -> None:
        folder = f"{gettempdir()}/dynamic-tables-{uuid4()}"
        super().__init__(name, Database.in_memory(), f"file://{folder}", default_database)
        finalize(self, rmtree, folder, ignore_errors=True)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:  # noqa: ARG003 - it needs none
        return cls(entry.name, entry.default_database or DEFAULT_DATABASE)

    def close(self) -> None:
        """Do nothing: closing would delete the in-memory database."""

    def stores(self) -> tuple[()]:  # type: ignore[override]  # a place less is what is meant
        """See :meth:`ReadableCatalog.stores`: no table can be refreshed here."""
        return ()


def _absolute_url(url: str, base: Path) -> str:
    """Return the URL of a database; the file of an SQLite database is resolved against ``base``."""
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url
