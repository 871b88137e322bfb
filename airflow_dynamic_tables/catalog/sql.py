"""A catalog in a SQL database; the physical tables are Iceberg, through PyIceberg's SqlCatalog on the same database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import ColumnElement, Connection, Table, delete, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.catalog.base import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
    JobState,
    ReadableWritableCatalog,
    RefreshHandler,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.database.engine import Database
from airflow_dynamic_tables.database.tables import catalog_tables, databases
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.iceberg import columns_of

_KINDS: dict[str, type[AnyTable]] = {"table": CatalogTable, "dynamic_table": CatalogDynamicTable, "view": CatalogView}


class SqlCatalog(ReadableWritableCatalog):
    """Databases, tables, dynamic tables and views in ``dt_`` tables.

    A table that somebody else made through PyIceberg in the same catalog is listed and read too.

    :param warehouse: URI of the folder new Iceberg tables are placed in.
    """

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._database = database
        self._warehouse = warehouse
        self._iceberg: IcebergCatalog | None = None

    def open(self) -> None:
        """Connect, and make sure that the default database exists."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Let go of connections."""
        if self._iceberg is not None:
            self._iceberg.close()
            self._iceberg = None
        self._database.close()

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        if self._iceberg is None:
            self._iceberg = self._open_iceberg()
        return self._iceberg

    def _open_iceberg(self) -> IcebergCatalog:
        url = make_url(self._database.url)
        if self._database.is_sqlite:
            url = url.update_query_dict({"timeout": "60"})
        properties = {"uri": url.render_as_string(hide_password=False), "warehouse": self._warehouse, "pool_pre_ping": "true"}
        with self._database.transaction():
            pass  # reach it once, so that a broken connection has its own error
        try:
            return IcebergCatalog(self.name, **properties)
        except DBAPIError:
            # Two processes that start at once both try to create PyIceberg's tables; now they are there.
            return IcebergCatalog(self.name, **properties)

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        with self._database.transaction() as connection:
            return sorted(connection.execute(select(databases.c.name).where(databases.c.catalog == self.name)).scalars())

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        with self._database.transaction() as connection:
            return CatalogDatabase(**self._database_value(connection, database))

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        row = {"catalog": self.name, "name": database, "value": asdict(value)}
        if not self._insert(databases, row) and not ignore_if_exists:
            raise self._database_exists_already(database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        with self._database.transaction() as connection:
            changed = connection.execute(update(databases).where(*self._is_database(database)).values(value=asdict(value)))
            if changed.rowcount == 0 and not ignore_if_not_exists:
                raise self._no_database(database)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        if ignore_if_not_exists and not self.database_exists(database):
            return
        tables = self.list_tables(database)
        if tables and not cascade:
            raise self._not_empty(database)
        for table in tables:
            self.drop_table(ObjectPath(database, table), ignore_if_not_exists=True)
        with self._database.transaction() as connection:
            connection.execute(delete(databases).where(*self._is_database(database)))

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        entries = self._names(database)
        if not self.iceberg.namespace_exists((database,)):
            return entries
        return sorted({*entries, *(str(identifier[-1]) for identifier in self.iceberg.list_tables((database,)))})

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return self._names(database, "dynamic_table")

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._names(database, "view")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`."""
        entry, physical = self._entry(path), self._physical(path)
        if entry is None and physical is None:
            raise self._no_table(path)
        if physical is None or isinstance(entry, CatalogView):
            if version is not None or entry is None:
                raise self._no_table(path)
            return entry
        columns, snapshot = _columns_as_of(physical, version)
        if columns is None:
            raise TableNotFoundError(f"Table {path} in catalog {self.name} has no version {version}.")
        if isinstance(entry, CatalogDynamicTable):
            return replace(entry, columns=columns, location=physical.location(), snapshot=snapshot)
        if entry is not None:
            return replace(entry, columns=columns, location=physical.location())
        keys = tuple(field.name for field in physical.spec().fields)
        return CatalogTable(columns, partition_keys=keys, location=physical.location(), properties=dict(physical.properties))

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        return self._entry(path) is not None or self._physical(path) is not None

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        self.get_database(path.database)
        if self._physical(path) is None and self._insert(catalog_tables, {**self._key(path), **_encode(table)}):
            return
        if not ignore_if_exists:
            raise self._table_exists_already(path)

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`."""
        found = self._entry(path)
        if found is None and not ignore_if_not_exists:
            raise self._no_table(path)
        if found is not None and type(found) is not type(table):
            raise self._other_kind(path, found, table)
        with self._database.transaction() as connection:
            connection.execute(update(catalog_tables).where(*self._is_table(path)).values(_encode(table)))

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        if not self.table_exists(path):
            if ignore_if_not_exists:
                return
            raise self._no_table(path)
        renamed = ObjectPath(path.database, new_name)
        if self.table_exists(renamed):
            raise self._table_exists_already(renamed)
        if self._physical(path) is not None:
            self.iceberg.rename_table((path.database, path.name), (path.database, new_name))
        with self._database.transaction() as connection:
            connection.execute(update(catalog_tables).where(*self._is_table(path)).values(name=new_name))

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        with self._database.transaction() as connection:
            dropped = connection.execute(delete(catalog_tables).where(*self._is_table(path))).rowcount
        try:
            self.iceberg.drop_table((path.database, path.name))
        except NoSuchTableError as error:
            if not dropped and not ignore_if_not_exists:
                raise self._no_table(path) from error

    def _insert(self, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key is taken; whether it was inserted."""
        with self._database.transaction() as connection:
            return connection.execute(self._database.insert(table).values(row).on_conflict_do_nothing()).rowcount == 1

    def _database_value(self, connection: Connection, database: str) -> dict[str, Any]:
        value: dict[str, Any] | None = connection.execute(select(databases.c.value).where(*self._is_database(database))).scalar()
        if value is None:
            raise self._no_database(database)
        return value

    def _names(self, database: str, kind: str | None = None) -> list[str]:
        query = select(catalog_tables.c.name).where(catalog_tables.c.catalog == self.name, catalog_tables.c.database == database)
        if kind is not None:
            query = query.where(catalog_tables.c.kind == kind)
        with self._database.transaction() as connection:
            self._database_value(connection, database)
            return sorted(connection.execute(query).scalars())

    def _entry(self, path: ObjectPath) -> AnyTable | None:
        query = select(catalog_tables.c.kind, catalog_tables.c.value).where(*self._is_table(path))
        with self._database.transaction() as connection:
            row = connection.execute(query).first()
        return _decode(row.kind, row.value) if row is not None else None

    def _physical(self, path: ObjectPath) -> IcebergTable | None:
        try:
            return self.iceberg.load_table((path.database, path.name))
        except NoSuchTableError:
            return None

    def _key(self, path: ObjectPath) -> dict[str, str]:
        return {"catalog": self.name, "database": path.database, "name": path.name}

    def _is_table(self, path: ObjectPath) -> tuple[ColumnElement[bool], ...]:
        return tuple(catalog_tables.c[name] == value for name, value in self._key(path).items())

    def _is_database(self, database: str) -> tuple[ColumnElement[bool], ...]:
        return databases.c.catalog == self.name, databases.c.name == database


def _columns_as_of(table: IcebergTable, version: str | None) -> tuple[tuple[Column, ...] | None, str | None]:
    """Columns and snapshot of a version; no columns when there is no such version."""
    if version is None:
        current = table.current_snapshot()
        return columns_of(table.schema()), str(current.snapshot_id) if current else None
    snapshot = table.snapshot_by_id(int(version)) if version.lstrip("-").isdecimal() else None
    if snapshot is None:
        return None, None
    schema = table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()
    return columns_of(schema), version


def _encode(table: AnyTable) -> dict[str, Any]:
    kind = next(name for name, cls in _KINDS.items() if cls is type(table))
    return {"kind": kind, "value": asdict(table)}


def _decode(kind: str, value: dict[str, Any]) -> AnyTable:
    values = {**value, "columns": tuple(Column(**column) for column in value["columns"])}
    if "partition_keys" in values:
        values["partition_keys"] = tuple(values["partition_keys"])
    if kind == "dynamic_table":
        handler = values["refresh_handler"]
        values["declared_refresh_mode"] = RefreshMode(values["declared_refresh_mode"])
        values["refresh_handler"] = RefreshHandler(
            RefreshMode(handler["actual_refresh_mode"]), JobState(handler["job_state"]), handler["job_detail"]
        )
    return _KINDS[kind](**values)
