"""Physical tables of the ``sql`` catalog: PyIceberg's catalog in the same database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyiceberg.catalog.sql import IcebergTables, SqlCatalogBaseTable
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FSSPEC_FILE_IO, PY_IO_IMPL
from pyiceberg.table import Table
from sqlalchemy import inspect, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from airflow_dynamic_tables.catalog.sql.rows import PHYSICAL
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.files import as_os_errors, is_object_store
from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog, damage_named
from airflow_dynamic_tables.clients.sql_servers import reason
from airflow_dynamic_tables.clients.stores import FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CatalogError, CatalogUnavailableError

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 100


class PhysicalTables:
    """Iceberg tables by path; PyIceberg's catalog is opened on first use.

    :param warehouse: URI of the folder for new Iceberg tables.
    """

    def __init__(self, name: str, database: Database, warehouse: str) -> None:
        self.warehouse = warehouse
        self._name = name
        self._database = database
        self._iceberg: LeanCatalog | None = None

    @property
    def iceberg(self) -> LeanCatalog:
        """PyIceberg's catalog; its namespaces are the databases.

        :raises CatalogUnavailableError: when the database cannot be reached.
        """
        return self._iceberg or self.open()

    def open(self) -> LeanCatalog:
        """Create PyIceberg's own tables if they are missing; idempotent.

        :raises CatalogUnavailableError: when the database cannot be reached.
        """
        if self._iceberg is None:
            self._iceberg = self._opened()
        return self._iceberg

    def close(self) -> None:
        """Discard PyIceberg's catalog; its connections belong to the database engine."""
        self._iceberg = None

    def stores(self) -> tuple[IcebergStore, FolderStore]:
        """Return the stores: PyIceberg's catalog, and plain folders."""
        iceberg = IcebergStore(self._name, self.iceberg, self._driver_errors, self._metadata_in)
        return iceberg, FolderStore(self._name, self.warehouse)

    @contextmanager
    def reading_many(self) -> Iterator[None]:
        """Context for reading many tables, whose metadata locations are loaded in one query."""
        names = ("catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location")
        columns = (PHYSICAL.table.c[name] for name in names)
        query = select(*columns).where(PHYSICAL.table.c.catalog_name == self._name)
        is_table = self.iceberg._iceberg_type_filter()
        with self._database.transaction() as connection:
            found = connection.execute(query if is_table is None else query.where(is_table)).all()
        with self.iceberg.reading_many(IcebergTables(**row._mapping) for row in found):
            yield

    def new_location(self, path: ObjectPath) -> str:
        """Return a unique folder name without characters that need encoding, because readers differ in decoding ``%``."""
        database, name = (_ODD.sub("_", part)[:_LONGEST_NAME] for part in (path.database, path.name))
        return f"{self.warehouse.rstrip('/')}/{database}/{name}-{uuid4().hex}"

    def load(self, path: ObjectPath) -> Table | None:
        """Return a table; ``None`` when Iceberg has none of that name.

        :raises CatalogError: when its metadata cannot be read.
        """
        try:
            with self._database.errors(), as_os_errors(), damage_named(path, self._name):
                return self.iceberg.load_table((path.database, path.name))
        except NoSuchTableError:
            return None
        except OSError as error:
            raise CatalogError(f"The Iceberg metadata of {path} in catalog {self._name} cannot be read: {error}") from error

    def _metadata_in(self, folder: str) -> list[str]:
        """Return the metadata locations of all tables of the database within a folder."""
        place = PHYSICAL.table.c.metadata_location
        with self._database.transaction() as connection:
            return list(connection.scalars(select(place).where(place.contains(folder, autoescape=True))))

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        """Convert errors as the ``errors`` of :class:`IcebergStore` requires."""
        try:
            yield
        except IntegrityError as error:
            raise AlreadyExistsError(f"Another client just created it in catalog {self._name}.") from error
        except DBAPIError as error:
            raise CatalogUnavailableError(f"Cannot reach catalog {self._name}: {reason(error)}") from error

    def _opened(self) -> LeanCatalog:
        self._make_tables()
        engine = self._database.engine
        properties = {
            "uri": engine.url.render_as_string(hide_password=False),
            "warehouse": self.warehouse,
            "init_catalog_tables": "false",
        }
        if is_object_store(self.warehouse):
            properties[PY_IO_IMPL] = (
                FSSPEC_FILE_IO  # as for all other files, so that endpoint and credentials are configured once
            )
        with self._database.errors():
            catalog = LeanCatalog(self._name, **properties)

        # PyIceberg's own engine pools connections, which must not survive a fork, and its timeout for SQLite's lock is short.
        catalog.engine.dispose()
        catalog.engine = engine
        return catalog

    def _make_tables(self) -> None:
        """Create PyIceberg's own tables. PyIceberg also creates missing tables, but fails if they are created concurrently.

        No lock is taken once the tables exist, because a suspended process may hold it.
        """
        own = SqlCatalogBaseTable.metadata
        with self._database.transaction() as connection:
            are_there = own.tables.keys() <= set(inspect(connection).get_table_names())
        if not are_there:
            with self._database.changing_schema() as connection:
                own.create_all(connection)
