"""The tables, dynamic tables and views of the ``sql`` catalog: a row, an Iceberg table, or both under one name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyiceberg.table import Table as IcebergTable
from sqlalchemy import select, update

from airflow_dynamic_tables.catalog.delta import entries as delta
from airflow_dynamic_tables.catalog.errors import no_database, no_table, no_version, other_kind, table_taken
from airflow_dynamic_tables.catalog.iceberg.metadata import as_stored
from airflow_dynamic_tables.catalog.sql.details import Details
from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables
from airflow_dynamic_tables.catalog.sql.rows import DETAILS, ENTRIES, PHYSICAL, TABLES, Rows, Store
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogView, decode, encode, is_own, unreadable
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.formats import is_placed_by_entry
from airflow_dynamic_tables.exceptions import UnsupportedError

_DYNAMIC = "dynamic_table"
"""Kind of the rows of dynamic tables."""


@dataclass(frozen=True, slots=True)
class SqlTables:
    """Rows of this package, and the tables that only PyIceberg knows."""

    store: Store
    physical: PhysicalTables

    def names(self, database: str) -> list[str]:
        """Names of tables, dynamic tables and views, sorted."""
        with self.store.transaction() as rows:
            rows.get_database(database)
            names = (
                rows.connection.scalars(select(register.table.c[register.name]).where(*rows.within(register, database)))
                for register in TABLES
            )
            return sorted(set().union(*names))

    def dynamic_names(self, database: str) -> list[str]:
        """Names of the dynamic tables, sorted."""
        return self._names_of(database, _DYNAMIC)

    def dynamic(self, database: str) -> dict[str, CatalogDynamicTable]:
        """The dynamic tables as their rows have them: no metadata of Iceberg is read."""
        with self.store.transaction() as rows:
            rows.get_database(database)
            columns = ENTRIES.table.c
            query = select(columns.name, columns.value).where(*rows.within(ENTRIES, database), columns.kind == _DYNAMIC)
            try:
                stored = rows.connection.execute(query.order_by(columns.name)).all()
            except ValueError as error:  # no JSON
                raise unreadable(f"a table of {database}", error) from error
        tables = {row.name: decode(_DYNAMIC, row.value, f"{database}.{row.name}") for row in stored}
        return {name: table for name, table in tables.items() if isinstance(table, CatalogDynamicTable)}

    def view_names(self, database: str) -> list[str]:
        """Names of the views, sorted."""
        return self._names_of(database, "view")

    def _names_of(self, database: str, kind: str) -> list[str]:
        with self.store.transaction() as rows:
            rows.get_database(database)
            query = select(ENTRIES.table.c.name).where(*rows.within(ENTRIES, database), ENTRIES.table.c.kind == kind)
            return sorted(rows.connection.scalars(query))

    def get(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """One table; what Iceberg knows better is as Iceberg says."""
        return self.as_stored(path, *self.load(path), version)

    def as_stored(
        self, path: ObjectPath, entry: AnyTable | None, physical: IcebergTable | None, version: str | None = None
    ) -> AnyTable:
        """What :meth:`get` gives of what :meth:`load` gave."""
        if physical is None and not delta.is_delta(entry):
            if entry is None or version is not None:
                raise no_table(self.store.catalog, path)
            return entry
        try:
            stored = as_stored(entry, physical, version) if physical is not None else delta.as_stored(entry, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.store.catalog}: {error}") from error
        if stored is None:
            raise no_version(self.store.catalog, path, str(version))
        return stored

    def load(self, path: ObjectPath) -> tuple[AnyTable | None, IcebergTable | None]:
        """The row and the Iceberg table of a path, of which one at least is there.

        :raises TableNotFoundError: when neither is.
        """
        with self.store.transaction() as rows:
            entry = _entry(rows, path)
        physical = self.physical.load(path) if entry is None or _is_iceberg(entry) else None
        if entry is None and physical is None:
            raise no_table(self.store.catalog, path)
        if entry is None:
            # The first refresh makes the row, then the table: both may have come between the two looks.
            with self.store.transaction() as rows:
                entry = _entry(rows, path)
        return entry, physical

    def exists(self, path: ObjectPath) -> bool:
        """Whether there is a row or an Iceberg table."""
        with self.store.transaction() as rows:
            return _is_taken(rows, path)

    def location(self, path: ObjectPath, table_format: str) -> str | None:
        """Where a table of ours of some format lies, as its row says; ``None`` when there is none of that name and format."""
        with self.store.transaction() as rows:
            entry = _entry(rows, path)
        return entry.location if is_own(entry) and entry.format == table_format else None

    def create(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """Insert a row."""
        row = {"database": path.database, "name": path.name, **encode(self._placed(path, table))}
        with self.store.transaction() as rows:
            if not rows.lock_database(path.database):
                raise no_database(rows.catalog, path.database)
            if not rows.exists(PHYSICAL, path) and rows.insert(ENTRIES.table, row):
                return
        if not ignore_if_exists:
            raise table_taken(self.store.catalog, path)

    def change(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the row by what is made of it, while it is locked.

        :raises UnsupportedError: when only PyIceberg knows the table.
        """
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            entry = _entry(rows, path)
            if entry is None:
                if rows.exists(PHYSICAL, path):
                    raise UnsupportedError(
                        f"{path} was made through Iceberg and not through catalog {rows.catalog}; alter it there."
                    )
                raise no_table(rows.catalog, path)
            table = self._placed(path, change(entry), entry)
            if type(entry) is not type(table):
                raise other_kind(rows.catalog, path, entry, table)
            rows.connection.execute(update(ENTRIES.table).where(*rows.at(ENTRIES, path)).values(encode(table)))
            return entry

    def _placed(self, path: ObjectPath, table: AnyTable, before: AnyTable | None = None) -> AnyTable:
        """A table whose entry has to say where it lies, in a folder that no other table has, or ever had."""
        if not is_own(table):
            return table
        former = before.format if is_own(before) else None
        if former == table.format and table.location is not None:
            return table
        if is_placed_by_entry(table.format):
            return replace(table, location=self.physical.new_location(path))
        return replace(table, location=None) if former is not None and is_placed_by_entry(former) else table

    def rename(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Change the name of the row, of the Iceberg table and of what hangs on them."""
        renamed = ObjectPath(path.database, new_name)
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            if not _is_taken(rows, path):
                if ignore_if_not_exists:
                    return
                raise no_table(rows.catalog, path)
            if _is_taken(rows, renamed):
                raise table_taken(rows.catalog, renamed)
            for register in (*TABLES, *DETAILS):
                change = update(register.table).where(*rows.at(register, path)).values({register.name: new_name})
                rows.connection.execute(change)

    def drop(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Delete the row, the Iceberg table and what hangs on them; the data files stay."""
        with self.store.transaction() as rows:
            dropped = sum([rows.delete(register, path.database, path.name) for register in TABLES])
            for register in DETAILS:
                rows.delete(register, path.database, path.name)
        if not dropped and not ignore_if_not_exists:
            raise no_table(self.store.catalog, path)


def described(rows: Rows, path: ObjectPath, what: str) -> tuple[AnyTable, Details]:
    """A table whose partitions and statistics are rows, locked until the end of the transaction.

    :param what: what is to be changed, for the error.
    :raises TableNotFoundError: when it is missing.
    :raises UnsupportedError: when they are those of its Iceberg metadata.
    """
    rows.lock_database(path.database)
    entry = _entry(rows, path)
    if entry is None and not rows.exists(PHYSICAL, path):
        raise no_table(rows.catalog, path)
    if entry is None or _is_iceberg(entry):
        raise UnsupportedError(f"The {what} of {path} in catalog {rows.catalog} are those of its Iceberg metadata.")
    return entry, Details(rows, path)


def _entry(rows: Rows, path: ObjectPath) -> AnyTable | None:
    try:
        row = rows.connection.execute(select(ENTRIES.table).where(*rows.at(ENTRIES, path))).first()
    except ValueError as error:  # no JSON
        raise unreadable(path, error) from error
    return decode(row.kind, row.value, path) if row is not None else None


def _is_taken(rows: Rows, path: ObjectPath) -> bool:
    return any(rows.exists(register, path) for register in TABLES)


def _is_iceberg(entry: AnyTable) -> bool:
    return not isinstance(entry, CatalogView) and entry.format == "iceberg"
