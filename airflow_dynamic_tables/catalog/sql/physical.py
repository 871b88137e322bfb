"""Physical tables of the ``sql`` catalog: PyIceberg's catalog in the same database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import Table
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, IntegrityError

from airflow_dynamic_tables.catalog.iceberg import encoding
from airflow_dynamic_tables.catalog.sql.rows import PHYSICAL
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogPartition, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.files import as_os_errors
from airflow_dynamic_tables.clients.iceberg.catalog import LeanCatalog, damage_named, file_io
from airflow_dynamic_tables.clients.sql_servers import reason
from airflow_dynamic_tables.clients.stores import FolderStore, IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CatalogError, CatalogUnavailableError


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """An Iceberg table in the database of the catalog."""

    table: Table

    def as_stored(self, entry: AnyTable | None, version: str | None) -> AnyTable | None:
        """See :func:`encoding.as_stored`."""
        return encoding.as_stored(entry, self.table, version)

    def partitions(self, keys: tuple[str, ...], spec: PartitionSpec) -> list[CatalogPartition]:
        """See :func:`encoding.partitions_of`."""
        return encoding.partitions_of(self.table, keys, spec)

    def statistics(self) -> TableStatistics:
        """See :func:`encoding.statistics_of`."""
        return encoding.statistics_of(self.table)

    def column_statistics(self) -> dict[str, ColumnStatistics]:
        """See :func:`encoding.column_statistics_of`."""
        return encoding.column_statistics_of(self.table)


class PhysicalTables:
    """Iceberg tables by path.

    :param warehouse: URI of the folder for new Iceberg tables.
    :raises CatalogUnavailableError: when the database cannot be reached.
    """

    def __init__(self, name: str, database: Database, warehouse: str) -> None:
        self._warehouse = warehouse
        self._name = name
        self._database = database
        self.iceberg = self._opened()

    def stores(self) -> tuple[IcebergStore, FolderStore]:
        """Return the stores: PyIceberg's catalog, and plain folders."""
        iceberg = IcebergStore(self._name, self.iceberg, self._driver_errors, self._metadata_in)
        return iceberg, FolderStore(self._name, self._warehouse)

    @contextmanager
    def reading_many(self) -> Iterator[None]:
        """Context for reading many tables, whose metadata locations are loaded in one query."""
        table = IcebergTables.metadata.tables[IcebergTables.__tablename__]
        query = select(*(table.c[column.name] for column in PHYSICAL.table.c)).where(table.c.catalog_name == self._name)
        is_table = self.iceberg._iceberg_type_filter()
        with self._database.transaction() as connection:
            found = connection.execute(query if is_table is None else query.where(is_table)).all()
        with self.iceberg.reading_many(IcebergTables(**row._mapping) for row in found):
            yield

    def load(self, path: ObjectPath) -> PhysicalTable | None:
        """Return a table; ``None`` when Iceberg has none of that name.

        :raises CatalogError: when its metadata cannot be read.
        """
        try:
            with self._database.errors(), as_os_errors(), damage_named(path, self._name):
                return PhysicalTable(self.iceberg.load_table((path.database, path.name)))
        except NoSuchTableError:
            return None
        except OSError as error:
            raise CatalogError(f"The Iceberg metadata of {path} in catalog {self._name} cannot be read: {error}") from error

    def _metadata_in(self, folder: str) -> list[str]:
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
        engine = self._database.engine
        properties = {
            "uri": engine.url.render_as_string(hide_password=False),
            "warehouse": self._warehouse,
            "init_catalog_tables": "false",
        }
        if implementation := file_io(self._warehouse):
            properties[PY_IO_IMPL] = implementation
        with self._database.errors():
            catalog = LeanCatalog(self._name, **properties)

        # PyIceberg's own engine pools connections, which must not survive a fork, and its timeout for SQLite's lock is short.
        catalog.engine.dispose()
        catalog.engine = engine
        return catalog
