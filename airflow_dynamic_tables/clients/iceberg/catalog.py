"""SQL catalog of Iceberg tables, and errors of damaged metadata files that name the table."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from threading import local
from typing import Any, TypeVar
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io import FSSPEC_FILE_IO
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
    update_table_metadata,
)
from pyiceberg.typedef import Identifier

from airflow_dynamic_tables.clients.files import is_object_store
from airflow_dynamic_tables.clients.sql_servers import make_engine, parse_url
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError, UnsupportedError

_Table = TypeVar("_Table")

_DAMAGE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError),
    *(EOFError, RecursionError, SystemError, NotImplementedError, struct.error, zlib.error, ValidationError),
)
"""Errors of reading a file that is truncated or corrupt, or whose content PyIceberg does not support."""

_UNKNOWN_TYPE = re.compile(r"(?:Unsupported field type: '|Type not recognized: )([a-z]\w*)")
"""PyIceberg's error for a type of a later format version than it knows."""


@contextmanager
def damage_named(path: object, catalog: str) -> Iterator[None]:
    """Convert errors of damaged metadata; wrap only PyIceberg's reads of a table.

    :raises CatalogUnavailableError: names the table when one of its metadata files is damaged.
    :raises UnsupportedError: names a type of Iceberg that PyIceberg does not know.
    """
    try:
        yield
    except DynamicTableError:
        raise
    except _DAMAGE as error:
        if unknown := _UNKNOWN_TYPE.search(str(error)):
            raise UnsupportedError(
                f"Iceberg table {path} in catalog {catalog} has a column of type {unknown[1]}, which cannot be read or refreshed "
                "here; let the engine that made the table cast the column to another type, such as string."
            ) from error
        why = shown(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}")
        raise CatalogUnavailableError(
            f"A metadata file of Iceberg table {path} in catalog {catalog} is damaged ({why}); restore the file, or drop the "
            "table and refresh it again."
        ) from error


def names_damage(table: type[_Table]) -> type[_Table]:
    """Run each public method of a class within :func:`damage_named`; its instances have a ``_path`` and a ``_store``."""

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            with damage_named(self._path, self._store.catalog):
                return method(self, *args, **kwargs)

        return run

    for name, method in [*vars(table).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(table, name, guarded(method))
    return table


def file_io(warehouse: str) -> str | None:
    """The class for the files of a warehouse's tables, ``None`` for PyIceberg's choice.

    They are read as all other files, so that endpoint and credentials are configured once; PyArrow takes half a second to import.
    """
    if warehouse.startswith("hdfs:"):
        return "airflow_dynamic_tables.clients.iceberg.hdfs.HadoopFileIO"
    return FSSPEC_FILE_IO if is_object_store(warehouse) or warehouse.startswith("file:") else None


PREVIOUS_METADATA = {TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "10"}
"""Number of previous metadata files kept; each is as large as the table's history, and none is read again."""

LATEST_VERSION = 2
"""The latest format version that PyIceberg writes; it can read later ones."""

NEW_TABLE = {
    TableProperties.FORMAT_VERSION: str(LATEST_VERSION),
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    **PREVIOUS_METADATA,
}
"""Properties of a new table."""


def warehouse(catalog: Catalog) -> str | None:
    """URI of the folder for new tables; ``None`` when only the server knows it."""
    named = str(catalog.properties.get("warehouse") or "")
    return named.rstrip("/") if "://" in named else None


def new_location(catalog: Catalog, path: ObjectPath) -> str | None:
    """A unique location for a new table: a renamed table keeps its folder, which a new table of its old name must not share.

    :return: ``None`` when only the catalog knows its tables' locations; the catalog then chooses.
    """
    folder = f"{folder_name(path.name)}-{uuid4().hex}"
    if (root := warehouse(catalog)) is not None:
        return f"{root}/{folder_name(path.database)}/{folder}"
    namespace = catalog.load_namespace_properties((path.database,)).get("location")
    return f"{str(namespace).rstrip('/')}/{folder}" if namespace else None


_PATIENCE = 60
"""Seconds to wait for another process's lock on an SQLite database."""


class _Read(local):
    """Rows fetched by one query; local to a thread, because other threads may be committing."""

    rows: dict[tuple[str, str], IcebergTables] | None = None


class LeanCatalog(SqlCatalog):
    """An SQL catalog that caches the latest table metadata.

    PyIceberg reads and copies the metadata of a table several times per change, which takes seconds with many snapshots. Metadata
    files are immutable, so the one last read or written is reused while the catalog refers to it and it exists.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._last: Table | None = None
        self._read = _Read()

    @contextmanager
    def reading_many(self, rows: Iterable[IcebergTables]) -> Iterator[None]:
        """Read many tables from rows that one query fetched, instead of one query per table."""
        self._read.rows = {(row.table_namespace, row.table_name): row for row in rows}
        try:
            yield
        finally:
            self._read.rows = None

    def load_table(self, identifier: str | Identifier) -> Table:
        """See :meth:`SqlCatalog.load_table`."""
        if self._read.rows is None:
            return super().load_table(identifier)
        row = self._row(identifier)
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(Catalog.identifier_to_tuple(identifier))}")
        return self._convert_orm_to_iceberg(row)

    def known_metadata(self, identifier: str | Identifier) -> str | None:
        """The metadata location of a table within :meth:`reading_many`; ``None`` when the database has to be queried."""
        row = self._row(identifier)
        return row.metadata_location if row is not None else None

    def _row(self, identifier: str | Identifier) -> IcebergTables | None:
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        return (self._read.rows or {}).get((namespace, Catalog.table_name_from(identifier)))

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        last = self._last
        is_current = last is not None and last.metadata_location == orm_table.metadata_location
        if last is None or not (is_current and last.io.new_input(last.metadata_location).exists()):
            last = self._last = super()._convert_orm_to_iceberg(orm_table)
        identifier = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(identifier, last.metadata, last.metadata_location, last.io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See :meth:`SqlCatalog.commit_table`."""
        committed = super().commit_table(table, requirements, updates)
        io = self._load_file_io(committed.metadata.properties, committed.metadata_location)
        self._last = Table(table.name(), committed.metadata, committed.metadata_location, io, self)
        return committed

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = _updated(current_table, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        location = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(version)
        return StagedTable(
            identifier=table_identifier,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(properties=metadata.properties, location=location),
            catalog=self,
        )


def _updated(table: Table, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """PyIceberg's ``update_table_metadata`` without its final deep copy of the result."""
    context = _TableMetadataUpdateContext()
    metadata = table.metadata
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if metadata is table.metadata:
        return metadata
    if metadata.last_updated_ms == table.metadata.last_updated_ms:
        return update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
    metadata = _update_table_metadata_log(metadata, table.metadata_location, table.metadata.last_updated_ms)
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def on_database(name: str, **properties: str) -> LeanCatalog:
    """A catalog in the database of the property ``uri``; missing catalog tables are created.

    :raises ConfigurationError: when the URL is malformed.
    :raises MissingExtraError: when the driver is not installed.
    """
    url = parse_url(properties["uri"], "'uri'")
    is_file = url.get_backend_name() == "sqlite"
    engine = make_engine(url, {"timeout": _PATIENCE} if is_file else {})
    with engine.begin() as connection:
        SqlCatalogBaseTable.metadata.create_all(connection)
    uri = engine.url.render_as_string(hide_password=False)
    catalog = LeanCatalog(name, **{**properties, "uri": uri, "init_catalog_tables": "false"})

    # PyIceberg's own engine pools connections, which must not be used after a fork, and waits too briefly for SQLite's lock.
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog
