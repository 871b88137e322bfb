"""Rows of the ``sql`` catalog: registers, conditions, transactions, and databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, TableClause, column, delete, inspect, literal_column, select, table, update

from airflow_dynamic_tables.catalog.base import database_taken, ignoring, no_database, not_empty
from airflow_dynamic_tables.catalog.operations import CatalogOfPartitionsAndFunctions
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import (
    catalog_functions,
    catalog_partitions,
    catalog_tables,
    databases,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError, UnsupportedError


class Register(NamedTuple):
    """A SQL table whose rows belong to a database, and its columns that form the name."""

    table: TableClause
    catalog: str = "catalog"
    database: str = "database"
    name: str = "name"

    def within(self, catalog: str, database: str, name: str | None = None) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for everything in a database, or for one name."""
        columns = self.table.c
        place = columns[self.catalog] == catalog, columns[self.database] == database
        return place if name is None else (*place, columns[self.name] == name)


ENTRIES = Register(catalog_tables)
_PHYSICAL_KEY = ("catalog_name", "table_namespace", "table_name")
_PHYSICAL_COLUMNS = (*_PHYSICAL_KEY, "metadata_location", "previous_metadata_location")
_NAMESPACE_KEY = ("catalog_name", "namespace", "property_key")
# PyIceberg's own descriptions of these tables take 0.3 s to import.
PHYSICAL = Register(table("iceberg_tables", *map(column, _PHYSICAL_COLUMNS)), *_PHYSICAL_KEY)
TABLES = (ENTRIES, PHYSICAL)
"""A table is in the first, the second or both; changes of both are in one transaction."""

PARTITIONS = Register(catalog_partitions)
"""Dependent rows of a table, which are renamed and deleted with it."""

FUNCTIONS = Register(catalog_functions)
NAMESPACES = Register(table("iceberg_namespace_properties", *map(column, _NAMESPACE_KEY)), *_NAMESPACE_KEY)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one catalog within one transaction."""

    catalog: str
    database: Database
    connection: Connection

    def within(self, register: Register, database: str, name: str | None = None) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for everything in a database of this catalog, or for one name."""
        return register.within(self.catalog, database, name)

    def at(self, register: Register, path: ObjectPath) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for a path."""
        return register.within(self.catalog, path.database, path.name)

    def of_database(self, database: str) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for the row of a database itself."""
        return databases.c.catalog == self.catalog, databases.c.name == database

    def exists(self, register: Register, path: ObjectPath) -> bool:
        """Return whether a register contains a path."""
        return self.connection.scalar(select(1).select_from(register.table).where(*self.at(register, path))) is not None

    def iceberg_tables(self, database: str) -> list[str]:
        """Return the names of the tables in PyIceberg's own table of a database, which may also hold views of other engines."""
        return [row.table_name for row in self._iceberg_rows(*self.within(PHYSICAL, database)) if not _is_view(row)]

    def check_is_no_view(self, path: ObjectPath) -> None:
        """Check that a path is not a view that another engine created.

        :raises UnsupportedError: when it is one.
        """
        if any(map(_is_view, self._iceberg_rows(*self.at(PHYSICAL, path)))):
            raise UnsupportedError(
                f"{path} in catalog {self.catalog} is a view of another engine, which this package cannot read or change; "
                "select from the tables that it reads, and change it with its engine."
            )

    def _iceberg_rows(self, *condition: ColumnElement[bool]) -> Sequence[Row[Any]]:
        # All columns, because the one of the type is missing in databases of early clients.
        return self.connection.execute(select(literal_column("*")).select_from(PHYSICAL.table).where(*condition)).all()

    def insert(self, table: TableClause, row: Mapping[str, Any]) -> bool:
        """Insert a row of this catalog unless its key is taken; return whether it was inserted."""
        values = {"catalog": self.catalog, **row}
        statement = self.database.insert(table).values(values).on_conflict_do_nothing().returning(table.c.name)
        return self.connection.scalar(statement) is not None

    def delete(self, register: Register, database: str, name: str | None = None) -> int:
        """Delete everything in a database, or one name; return the number of rows."""
        return self.connection.execute(delete(register.table).where(*self.within(register, database, name))).rowcount

    def lock_database(self, database: str) -> bool:
        """Lock a database against other writers until the end of the transaction; return whether it exists."""
        query = select(databases.c.name).where(*self.of_database(database)).with_for_update()
        return self.connection.scalar(query) is not None

    def get_database(self, database: str) -> CatalogDatabase:
        """Return the value of a database.

        :raises DatabaseNotFoundError: when it is missing.
        """
        value = self.connection.scalar(select(databases.c.value).where(*self.of_database(database)))
        if value is None:
            raise no_database(self.catalog, database)
        return CatalogDatabase(**value)


def _is_view(row: Row[Any]) -> bool:
    return row._mapping.get("iceberg_type") == "VIEW"


@dataclass(frozen=True, slots=True)
class RowStore:
    """The row storage of one catalog."""

    catalog: str
    database: Database

    @contextmanager
    def transaction(self) -> Iterator[Rows]:
        """Yield the rows within one transaction, which an error rolls back.

        :raises CatalogUnavailableError: when the database cannot be reached.
        """
        with self.database.transaction() as connection:
            yield Rows(self.catalog, self.database, connection)

    def create_iceberg_tables(self) -> None:
        """Create PyIceberg's own tables. PyIceberg also creates missing tables, but fails if they are created concurrently.

        No lock is taken once the tables exist, because a suspended process may hold it.
        """
        with self.database.transaction() as connection:
            if {PHYSICAL.table.name, NAMESPACES.table.name} <= set(inspect(connection).get_table_names()):
                return
        from pyiceberg.catalog.sql import SqlCatalogBaseTable

        with self.database.changing_schema() as connection:
            SqlCatalogBaseTable.metadata.create_all(connection)


class SqlDatabases(CatalogOfPartitionsAndFunctions):
    """Databases as rows; renaming or dropping one also applies to its content."""

    def __init__(self, name: str, database: Database, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.store = RowStore(name, database)

    def list_databases(self) -> list[str]:
        with self.store.transaction() as rows:
            return sorted(rows.connection.scalars(select(databases.c.name).where(databases.c.catalog == rows.catalog)))

    def get_database(self, database: str) -> CatalogDatabase:
        with self.store.transaction() as rows:
            return rows.get_database(database)

    def _create_database(self, database: str, value: CatalogDatabase) -> None:
        with self.store.transaction() as rows:
            if not rows.insert(databases, {"name": database, "value": asdict(value)}):
                raise database_taken(rows.catalog, database)

    def _alter_database(self, database: str, value: CatalogDatabase) -> None:
        with self.store.transaction() as rows:
            change = update(databases).where(*rows.of_database(database)).values(value=asdict(value))
            if rows.connection.execute(change).rowcount == 0:
                raise no_database(rows.catalog, database)

    def rename_database(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_database`; the files of its tables are not moved."""
        with ignoring(DatabaseNotFoundError, ignore_if_not_exists), self.store.transaction() as rows:
            if not rows.lock_database(database):
                raise no_database(rows.catalog, database)
            value = asdict(rows.get_database(database))
            if not rows.insert(databases, {"name": new_name, "value": value}):
                raise database_taken(rows.catalog, new_name)

            for register in (*TABLES, PARTITIONS, FUNCTIONS, NAMESPACES):
                move = update(register.table).where(*rows.within(register, database)).values({register.database: new_name})
                rows.connection.execute(move)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))

    def _drop_database(self, database: str, *, cascade: bool) -> None:
        with self.store.transaction() as rows:
            if not rows.lock_database(database):
                raise no_database(rows.catalog, database)
            dropped = sum([rows.delete(register, database) for register in (*TABLES, FUNCTIONS)])
            if dropped and not cascade:
                raise not_empty(rows.catalog, database)  # rolls back

            for register in (PARTITIONS, NAMESPACES):
                rows.delete(register, database)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))
