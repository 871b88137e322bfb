"""PyIceberg's catalog in a SQL database, at a cost that does not grow with the history of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableResponse, StagedTable, Table
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

from airflow_dynamic_tables.clients.sql_servers import make_engine, parse_url

_PATIENCE = 60
"""Seconds that somebody else may keep an SQLite database to himself."""


class _Read(local):
    """Rows that were read in one query; of one thread, because others may be committing."""

    rows: dict[tuple[str, str], IcebergTables] | None = None


class LeanCatalog(SqlCatalog):
    """PyIceberg's own reads and copies the whole metadata of a table several times for one change: seconds for many snapshots.

    A metadata file never changes, so the one that was read or written last is not read again while the catalog names it and it is
    there.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._last: Table | None = None
        self._read = _Read()

    @contextmanager
    def reading_many(self, rows: Iterable[IcebergTables]) -> Iterator[None]:
        """Around reads of many tables: their rows were read in one query, instead of one for each table."""
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
        """Where the metadata of a table are, within :meth:`reading_many`; ``None`` where the database has to be asked."""
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
    """PyIceberg's ``update_table_metadata`` without its last step, a deep copy of the result."""
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
    """A catalog in a database that the property ``uri`` names; its tables are made when they are missing.

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

    # PyIceberg's own engine pools connections, which must not live through a fork, and is impatient with SQLite's lock.
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog
