"""What the ``sql`` catalog keeps as rows, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from sqlalchemy import ColumnElement, Connection, Table

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import (
    catalog_functions,
    catalog_partitions,
    catalog_statistics,
    catalog_tables,
)


class Register(NamedTuple):
    """A SQL table whose rows belong to a database, and which of its columns make up the name."""

    table: Table
    catalog: str = "catalog"
    database: str = "database"
    name: str = "name"

    def within(self, catalog: str, database: str, name: str | None = None) -> tuple[ColumnElement[bool], ...]:
        """The condition for everything in a database, or for what has that name."""
        columns = self.table.c
        place = columns[self.catalog] == catalog, columns[self.database] == database
        return place if name is None else (*place, columns[self.name] == name)


ENTRIES = Register(catalog_tables)
PHYSICAL = Register(IcebergTables.metadata.tables[IcebergTables.__tablename__], "catalog_name", "table_namespace", "table_name")
TABLES = (ENTRIES, PHYSICAL)
"""A table stands in the first, the second or both; one transaction over both keeps them in step."""

PARTITIONS = Register(catalog_partitions)
STATISTICS = Register(catalog_statistics)
DETAILS = (PARTITIONS, STATISTICS)
"""What hangs on a table: it moves and goes with it."""

FUNCTIONS = Register(catalog_functions)
NAMESPACES = Register(
    IcebergTables.metadata.tables[IcebergNamespaceProperties.__tablename__], "catalog_name", "namespace", "property_key"
)


def insert(database: Database, connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is taken; whether it was inserted."""
    statement = database.insert(table).values(row).on_conflict_do_nothing().returning(table.c.name)
    return connection.scalar(statement) is not None
