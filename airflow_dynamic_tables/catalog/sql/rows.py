"""Rows of the ``sql`` catalog: registers, conditions and transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from sqlalchemy import ColumnElement, Connection, Table, delete, select

from airflow_dynamic_tables.catalog.base import no_database
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import (
    catalog_functions,
    catalog_partitions,
    catalog_tables,
    databases,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath


class Register(NamedTuple):
    """A SQL table whose rows belong to a database, and its columns that form the name."""

    table: Table
    catalog: str = "catalog"
    database: str = "database"
    name: str = "name"

    def within(self, catalog: str, database: str, name: str | None = None) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for everything in a database, or for one name."""
        columns = self.table.c
        place = columns[self.catalog] == catalog, columns[self.database] == database
        return place if name is None else (*place, columns[self.name] == name)


ENTRIES = Register(catalog_tables)
PHYSICAL = Register(IcebergTables.metadata.tables[IcebergTables.__tablename__], "catalog_name", "table_namespace", "table_name")
TABLES = (ENTRIES, PHYSICAL)
"""A table is in the first, the second or both; changes of both are in one transaction."""

PARTITIONS = Register(catalog_partitions)
"""Dependent rows of a table, which are renamed and deleted with it."""

FUNCTIONS = Register(catalog_functions)
NAMESPACES = Register(
    IcebergTables.metadata.tables[IcebergNamespaceProperties.__tablename__], "catalog_name", "namespace", "property_key"
)


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

    def insert(self, table: Table, row: Mapping[str, Any]) -> bool:
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
