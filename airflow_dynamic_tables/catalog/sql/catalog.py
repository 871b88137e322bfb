"""A catalog in a SQL database; the physical tables are Iceberg, through PyIceberg's SqlCatalog on the same database."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import Self
from uuid import uuid4
from weakref import finalize

from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogEntry, Defaults, absolute_uri
from airflow_dynamic_tables.catalog.parts import CatalogOfParts
from airflow_dynamic_tables.catalog.sql.databases import SqlDatabases
from airflow_dynamic_tables.catalog.sql.functions import SqlFunctions
from airflow_dynamic_tables.catalog.sql.partitions import SqlPartitions
from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables
from airflow_dynamic_tables.catalog.sql.rows import Store
from airflow_dynamic_tables.catalog.sql.statistics import SqlStatistics
from airflow_dynamic_tables.catalog.sql.tables import SqlTables
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import EntryStore, FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import folder_name


class SqlCatalog(CatalogOfParts):
    """Databases, tables, dynamic tables, views and functions in ``dt_`` tables; each subject is a part of its own.

    A table that somebody else made through PyIceberg in the same catalog is listed and read too. Partitions and statistics
    of Iceberg tables are those of their own metadata and cannot be changed here, others are kept as rows.

    :param warehouse: URI of the folder new Iceberg tables are placed in.
    """

    publishes_drafts = True

    _databases: SqlDatabases
    _tables: SqlTables

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._database = database
        self._physical = PhysicalTables(name, database, warehouse)
        store = Store(name, database)
        self._databases = SqlDatabases(store)
        self._functions = SqlFunctions(store)
        self._tables = SqlTables(store, self._physical)
        self._partitions = SqlPartitions(self._tables)
        self._statistics = SqlStatistics(self._tables, self._partitions)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:
        """See :meth:`ReadableCatalog.from_entry`; without parameters it is in the embedded database."""
        url = _absolute_url(entry.params.get("url", defaults.database_url), entry.base)
        database = Database(url, private_files=defaults.private_files)
        warehouse = entry.folder("warehouse") or absolute_uri(f"{defaults.warehouse}/{folder_name(entry.name)}", entry.base)
        return cls(entry.name, database, warehouse, entry.default_database or DEFAULT_DATABASE)

    @property
    def warehouse(self) -> str:
        """URI of the folder new Iceberg tables are placed in."""
        return self._physical.warehouse

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        return self._physical.iceberg

    def open(self) -> None:
        """Connect, and make sure that the default database and PyIceberg's own tables exist."""
        self._databases.create(self.default_database, CatalogDatabase(), ignore_if_exists=True)
        self._physical.open()

    def close(self) -> None:
        """Let go of connections."""
        self._physical.close()
        self._database.close()

    def upgrade(self) -> None:
        """See :meth:`ReadableCatalog.upgrade`."""
        self._database.upgrade()

    def stores(self) -> tuple[IcebergStore, FolderStore, EntryStore]:
        """See :meth:`ReadableCatalog.stores`."""
        return (*self._physical.stores(), EntryStore(self.name, self._tables.location))

    def reading_many(self) -> AbstractContextManager[None]:
        """See :meth:`ReadableCatalog.reading_many`."""
        return self._physical.reading_many()

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`; the files of its tables stay where they are."""
        self._databases.rename(database, new_name, ignore_if_not_exists=ignore_if_not_exists)


class MemoryCatalog(SqlCatalog):
    """A ``sql`` catalog in an SQLite database in memory, for tests and dry runs.

    It lives as long as this object. The metadata of its Iceberg tables is in a temporary folder, and no rows are written there.
    """

    def __init__(self, name: str, default_database: str = DEFAULT_DATABASE) -> None:
        folder = f"{gettempdir()}/dynamic-tables-{uuid4()}"
        super().__init__(name, Database.in_memory(), f"file://{folder}", default_database)
        finalize(self, rmtree, folder, ignore_errors=True)

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:  # noqa: ARG003 - it needs none
        """See :meth:`ReadableCatalog.from_entry`."""
        return cls(entry.name, entry.default_database or DEFAULT_DATABASE)

    def close(self) -> None:
        """Do nothing: a closed database in memory is gone."""

    def stores(self) -> tuple[()]:  # type: ignore[override]  # a place less is what is meant
        """See :meth:`ReadableCatalog.stores`: no table can be refreshed here."""
        return ()


def _absolute_url(url: str, base: Path) -> str:
    """The URL of a database; the file of an SQLite database starts from ``base``."""
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url
