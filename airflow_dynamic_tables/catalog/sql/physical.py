"""The physical tables of the ``sql`` catalog: PyIceberg's catalog on the same database."""

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
from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog
from airflow_dynamic_tables.clients.iceberg.damage import damage_named
from airflow_dynamic_tables.clients.object_stores import as_os_errors, is_object_store
from airflow_dynamic_tables.clients.sql_servers import reason
from airflow_dynamic_tables.clients.stores import FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CatalogError, CatalogUnavailableError

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 100


class PhysicalTables:
    """Iceberg tables by path; PyIceberg's catalog is opened when it is first needed.

    :param warehouse: URI of the folder new Iceberg tables are placed in.
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
        """Make sure that PyIceberg's own tables exist; idempotent.

        :raises CatalogUnavailableError: when the database cannot be reached.
        """
        if self._iceberg is None:
            self._iceberg = self._opened()
        return self._iceberg

    def close(self) -> None:
        """Forget PyIceberg's catalog; its connections are the database's."""
        self._iceberg = None

    def stores(self) -> tuple[IcebergStore, FolderStore]:
        """Where tables can lie by their names: in PyIceberg's catalog, and as plain folders beside."""
        iceberg = IcebergStore(self._name, self.iceberg, self._driver_errors, self._metadata_in)
        return iceberg, FolderStore(self._name, self.warehouse)

    @contextmanager
    def reading_many(self) -> Iterator[None]:
        """Around reads of many tables, the metadata of which is looked up in one query."""
        names = ("catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location")
        columns = (PHYSICAL.table.c[name] for name in names)
        query = select(*columns).where(PHYSICAL.table.c.catalog_name == self._name)
        is_table = self.iceberg._iceberg_type_filter()
        with self._database.transaction() as connection:
            found = connection.execute(query if is_table is None else query.where(is_table)).all()
        with self.iceberg.reading_many(IcebergTables(**row._mapping) for row in found):
            yield

    def new_location(self, path: ObjectPath) -> str:
        """A folder that no table ever had, with a name that every reader spells alike: some decode ``%``, and some do not."""
        database, name = (_ODD.sub("_", part)[:_LONGEST_NAME] for part in (path.database, path.name))
        return f"{self.warehouse.rstrip('/')}/{database}/{name}-{uuid4().hex}"

    def load(self, path: ObjectPath) -> Table | None:
        """One table; ``None`` when Iceberg has none of that name.

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
        """Metadata of all tables of the database that lies in a folder."""
        place = PHYSICAL.table.c.metadata_location
        with self._database.transaction() as connection:
            return list(connection.scalars(select(place).where(place.contains(folder, autoescape=True))))

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        """What :class:`IcebergStore` promises of its ``errors``."""
        try:
            yield
        except IntegrityError as error:
            raise AlreadyExistsError(f"Somebody else made it in catalog {self._name} just now.") from error
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
            properties[PY_IO_IMPL] = FSSPEC_FILE_IO  # as for all other files: one place says endpoint and credentials
        with self._database.errors():
            catalog = LeanCatalog(self._name, **properties)

        # PyIceberg's own engine pools connections, which must not live through a fork, and is impatient with SQLite's lock.
        catalog.engine.dispose()
        catalog.engine = engine
        return catalog

    def _make_tables(self) -> None:
        """Make PyIceberg's own tables. It would look for them as well, but fail where somebody else makes them a moment earlier.

        Nobody waits for the lock once they are there: a process may be stopped that holds it.
        """
        own = SqlCatalogBaseTable.metadata
        with self._database.transaction() as connection:
            are_there = own.tables.keys() <= set(inspect(connection).get_table_names())
        if not are_there:
            with self._database.changing_schema() as connection:
                own.create_all(connection)
