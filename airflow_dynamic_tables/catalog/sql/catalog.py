"""The ``sql`` catalog, and its databases and functions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import Self
from uuid import uuid4
from weakref import finalize

from sqlalchemy import select, update

from airflow_dynamic_tables.catalog.base import (
    DEFAULT_DATABASE,
    CatalogDefaults,
    CatalogEntry,
    absolute_uri,
    function_taken,
    no_database,
    no_function,
)
from airflow_dynamic_tables.catalog.sql.rows import FUNCTIONS
from airflow_dynamic_tables.catalog.sql.tables import SqlTablePartitions
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import EntryStore, FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name


class SqlFunctions(SqlTablePartitions):
    """Functions as rows, by name in lower case."""

    def list_functions(self, database: str) -> list[str]:
        with self.store.transaction() as rows:
            rows.get_database(database)
            return sorted(rows.connection.scalars(select(FUNCTIONS.table.c.name).where(*rows.within(FUNCTIONS, database))))

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        with self.store.transaction() as rows:
            value = rows.connection.scalar(select(FUNCTIONS.table.c.value).where(*rows.at(FUNCTIONS, _folded(path))))
            if value is None:
                raise no_function(rows.catalog, path)
            return CatalogFunction(**value)

    def _create_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        with self.store.transaction() as rows:
            if not rows.lock_database(path.database):
                raise no_database(rows.catalog, path.database)
            row = {"database": path.database, "name": _folded(path).name, "value": asdict(function)}
            if not rows.insert(FUNCTIONS.table, row):
                raise function_taken(rows.catalog, path)

    def _alter_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        with self.store.transaction() as rows:
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(value=asdict(function))
            if rows.connection.execute(change).rowcount == 0:
                raise no_function(rows.catalog, path)

    def _rename_function(self, path: ObjectPath, new_name: str) -> None:
        renamed = _folded(ObjectPath(path.database, new_name))
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            if not rows.exists(FUNCTIONS, _folded(path)):
                raise no_function(rows.catalog, path)
            if rows.exists(FUNCTIONS, renamed):
                raise function_taken(rows.catalog, renamed)
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(name=renamed.name)
            rows.connection.execute(change)

    def _drop_function(self, path: ObjectPath) -> None:
        with self.store.transaction() as rows:
            if not rows.delete(FUNCTIONS, path.database, _folded(path).name):
                raise no_function(rows.catalog, path)


def _folded(path: ObjectPath) -> ObjectPath:
    """Return the path in lower case: names of functions are case-insensitive."""
    return ObjectPath(path.database, path.name.lower())


class SqlCatalog(SqlFunctions):
    """Databases, tables, dynamic tables, views and functions in ``dt_`` tables, one part for each subject.

    A table that another client created through PyIceberg in the same catalog is listed and read too. Partitions and statistics
    of Iceberg tables come from their own metadata; partitions of other tables are stored as rows.
    """

    publishes_drafts = True

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:
        """See :meth:`ReadableCatalog.from_entry`; without parameters it uses the embedded database."""
        url = _absolute_url(entry.params.get("url", defaults.database_url), entry.base)
        database = Database(url, private_files=defaults.private_files)
        warehouse = entry.folder("warehouse") or absolute_uri(f"{defaults.warehouse}/{folder_name(entry.name)}", entry.base)
        return cls(entry.name, database, warehouse, entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and create the default database and PyIceberg's own tables if they are missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)
        self.store.create_iceberg_tables()

    def close(self) -> None:
        """Close connections, and discard PyIceberg's catalog, which uses them."""
        self.__dict__.pop("_physical", None)
        self.store.database.close()

    def upgrade(self) -> None:
        self.store.database.upgrade()

    def stores(self) -> tuple[IcebergStore, FolderStore, EntryStore]:
        return (*self._physical.stores(), EntryStore(self.name, self.location))

    def reading_many(self) -> AbstractContextManager[None]:
        return self._physical.reading_many()


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
