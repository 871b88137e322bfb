"""A catalog in a SQL database; the physical tables are Iceberg, through PyIceberg's SqlCatalog on the same database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from sqlalchemy import ColumnElement, Connection, Table, delete, select, update
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.sql_rows import ENTRIES, PHYSICAL, REGISTERS, Register, decode, encode
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.database.engine import Database
from airflow_dynamic_tables.database.tables import catalog_tables, databases
from airflow_dynamic_tables.exceptions import CatalogError, TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.formats.iceberg import columns_of


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
        """Connect, and make sure that the default database and PyIceberg's own tables exist."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)
        if self._iceberg is None:
            self._iceberg = self._open_iceberg()

    def close(self) -> None:
        """Let go of connections."""
        self._iceberg = None
        self._database.close()

    def upgrade(self) -> None:
        """See :meth:`ReadableCatalog.upgrade`."""
        self._database.upgrade()

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        if self._iceberg is None:
            self._iceberg = self._open_iceberg()
        return self._iceberg

    def _open_iceberg(self) -> IcebergCatalog:
        with self._database.errors():
            engine = self._database.engine
            properties = {"uri": engine.url.render_as_string(hide_password=False), "warehouse": self._warehouse}
            try:
                catalog = IcebergCatalog(self.name, **properties)
            except DBAPIError:
                # Two processes that start at once both try to create PyIceberg's tables; now they are there.
                catalog = IcebergCatalog(self.name, **properties)
        # PyIceberg's own engine pools connections, which must not live through a fork, and is impatient with SQLite's lock.
        catalog.engine.dispose()
        catalog.engine = engine
        return catalog

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        with self._database.transaction() as connection:
            return sorted(connection.scalars(select(databases.c.name).where(databases.c.catalog == self.name)))

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        with self._database.transaction() as connection:
            return self._found_database(connection, database)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        row = {"catalog": self.name, "name": database, "value": asdict(value)}
        with self._database.transaction() as connection:
            if not self._insert(connection, databases, row) and not ignore_if_exists:
                raise self._database_exists_already(database)

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        change = update(databases).where(*self._is_database(database)).values(value=asdict(value))
        with self._database.transaction() as connection:
            if connection.execute(change).rowcount == 0 and not ignore_if_not_exists:
                raise self._no_database(database)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        with self._database.transaction() as connection:
            if not self._lock_database(connection, database):
                if ignore_if_not_exists:
                    return
                raise self._no_database(database)
            removals = (delete(register.table).where(*register.within(self.name, database)) for register in REGISTERS)
            dropped = sum([connection.execute(removal).rowcount for removal in removals])
            if dropped and not cascade:
                raise self._not_empty(database)  # which rolls back
            connection.execute(delete(databases).where(*self._is_database(database)))

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        with self._database.transaction() as connection:
            self._found_database(connection, database)
            names = (
                connection.scalars(select(register.table.c[register.name]).where(*register.within(self.name, database)))
                for register in REGISTERS
            )
            return sorted(set().union(*names))

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return self._list_kind(database, "dynamic_table")

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._list_kind(database, "view")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`."""
        with self._database.transaction() as connection:
            entry = self._entry(connection, path)
        is_iceberg = entry is None or (not isinstance(entry, CatalogView) and entry.format == "iceberg")
        physical = self._load(path) if is_iceberg else None
        if physical is None:
            if entry is None or version is not None:
                raise self._no_table(path)
            return entry
        return self._as_stored(path, entry, physical, version)

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        with self._database.transaction() as connection:
            return any(self._registered(connection, register, path) for register in REGISTERS)

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        row = {"catalog": self.name, "database": path.database, "name": path.name, **encode(table)}
        with self._database.transaction() as connection:
            if not self._lock_database(connection, path.database):
                raise self._no_database(path.database)
            if not self._registered(connection, PHYSICAL, path) and self._insert(connection, catalog_tables, row):
                return
        if not ignore_if_exists:
            raise self._table_exists_already(path)

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`.

        :raises UnsupportedError: when only PyIceberg knows the table.
        """
        with self._database.transaction() as connection:
            self._lock_database(connection, path.database)
            found = self._entry(connection, path)
            if found is None:
                if self._registered(connection, PHYSICAL, path):
                    raise UnsupportedError(
                        f"{path} was made through Iceberg and not through catalog {self.name}; alter it there."
                    )
                if ignore_if_not_exists:
                    return
                raise self._no_table(path)
            if type(found) is not type(table):
                raise self._other_kind(path, found, table)
            connection.execute(update(catalog_tables).where(*self._at(ENTRIES, path)).values(encode(table)))

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        renamed = ObjectPath(path.database, new_name)
        with self._database.transaction() as connection:
            self._lock_database(connection, path.database)
            if not any(self._registered(connection, register, path) for register in REGISTERS):
                if ignore_if_not_exists:
                    return
                raise self._no_table(path)
            if any(self._registered(connection, register, renamed) for register in REGISTERS):
                raise self._table_exists_already(renamed)
            for register in REGISTERS:
                change = update(register.table).where(*self._at(register, path)).values({register.name: new_name})
                connection.execute(change)

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        with self._database.transaction() as connection:
            removals = (delete(register.table).where(*self._at(register, path)) for register in REGISTERS)
            dropped = sum([connection.execute(removal).rowcount for removal in removals])
        if not dropped and not ignore_if_not_exists:
            raise self._no_table(path)

    def _insert(self, connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key is taken; whether it was inserted."""
        insert = self._database.insert(table).values(row).on_conflict_do_nothing().returning(table.c.name)
        return connection.scalar(insert) is not None

    def _lock_database(self, connection: Connection, database: str) -> bool:
        """Keep other writers out of a database until the end of the transaction; whether it exists."""
        query = select(databases.c.name).where(*self._is_database(database)).with_for_update()
        return connection.scalar(query) is not None

    def _found_database(self, connection: Connection, database: str) -> CatalogDatabase:
        value = connection.scalar(select(databases.c.value).where(*self._is_database(database)))
        if value is None:
            raise self._no_database(database)
        return CatalogDatabase(**value)

    def _list_kind(self, database: str, kind: str) -> list[str]:
        query = select(catalog_tables.c.name).where(*ENTRIES.within(self.name, database), catalog_tables.c.kind == kind)
        with self._database.transaction() as connection:
            self._found_database(connection, database)
            return sorted(connection.scalars(query))

    def _registered(self, connection: Connection, register: Register, path: ObjectPath) -> bool:
        return connection.scalar(select(1).select_from(register.table).where(*self._at(register, path))) is not None

    def _entry(self, connection: Connection, path: ObjectPath) -> AnyTable | None:
        row = connection.execute(select(catalog_tables).where(*self._at(ENTRIES, path))).first()
        return decode(row.kind, row.value) if row is not None else None

    def _load(self, path: ObjectPath) -> IcebergTable | None:
        try:
            with self._database.errors():
                return self.iceberg.load_table((path.database, path.name))
        except NoSuchTableError:
            return None
        except (OSError, ValueError) as error:
            raise CatalogError(f"The Iceberg metadata of {path} in catalog {self.name} cannot be read: {error}") from error

    def _as_stored(self, path: ObjectPath, entry: AnyTable | None, physical: IcebergTable, version: str | None) -> AnyTable:
        """The entry with what the physical table knows better, as of a version."""
        try:
            found = _columns_as_of(physical, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.name}: {error}") from error
        if found is None:
            raise TableNotFoundError(f"Table {path} in catalog {self.name} has no version {version}.")
        columns, snapshot = found
        if isinstance(entry, CatalogDynamicTable):
            return replace(entry, columns=columns, location=physical.location(), snapshot=snapshot)
        if isinstance(entry, CatalogTable):
            return replace(entry, columns=columns, location=physical.location())
        return CatalogTable(
            columns,
            comment=physical.properties.get("comment"),
            partition_keys=_partition_keys(physical),
            location=physical.location(),
            properties=dict(physical.properties),
        )

    def _at(self, register: Register, path: ObjectPath) -> tuple[ColumnElement[bool], ...]:
        return register.within(self.name, path.database, path.name)

    def _is_database(self, database: str) -> tuple[ColumnElement[bool], ...]:
        return databases.c.catalog == self.name, databases.c.name == database


def _columns_as_of(table: IcebergTable, version: str | None) -> tuple[tuple[Column, ...], str | None] | None:
    """Columns and snapshot of a version, by default the current one; ``None`` when there is no such version."""
    snapshots = {str(snapshot.snapshot_id): snapshot for snapshot in table.snapshots()}
    if version is None:
        current = table.current_snapshot()
        return columns_of(table.schema()), str(current.snapshot_id) if current else None
    if version not in snapshots:
        return None
    schema_id = snapshots[version].schema_id
    return columns_of(table.schema() if schema_id is None else table.schemas()[schema_id]), version


def _partition_keys(table: IcebergTable) -> tuple[str, ...]:
    """Columns whose values are partition values; those that Iceberg transforms (``days(ts)``) are none."""
    fields = (field for field in table.spec().fields if isinstance(field.transform, IdentityTransform))
    return tuple(str(table.schema().find_column_name(field.source_id)) for field in fields)
