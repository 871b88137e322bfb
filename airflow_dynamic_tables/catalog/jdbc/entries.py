"""What a catalog keeps of the tables of a PostgreSQL database that are made here: a row for each, in the schema that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, decode, encode
from airflow_dynamic_tables.clients.postgres.names import ENTRIES, TableName
from airflow_dynamic_tables.clients.postgres.own_tables import (
    NO_PRIVILEGE,
    forget_commits,
    is_made_here,
    is_there,
    keep_entry,
    no_right_on_own,
)
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, literal, quote

_SCHEMAS = """
SELECT n.nspname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(entries)s AND c.relkind = 'r'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1
"""


OwnTable = CatalogDynamicTable | CatalogTable
"""A table that is made here: a dynamic one, or one that CREATE TABLE AS made."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The rows of tables that are made here in one database, on one connection.

    The row of a table that CREATE TABLE AS made counts as long as that very table is there: it came with the table, and whoever
    drops the table in PostgreSQL leaves it behind.
    """

    database: OpenDatabase

    def dynamic(self) -> dict[str, CatalogDynamicTable]:
        """Every dynamic table by the name it goes by."""
        found: dict[str, CatalogDynamicTable] = {}
        for schema in self.database.rows(_SCHEMAS, {"entries": ENTRIES}):
            for row in self.database.rows(f"SELECT table_name, value FROM {quote(schema.name, ENTRIES)}"):
                entry = _entry(row.value, TableName(schema.name, row.table_name))
                if isinstance(entry, CatalogDynamicTable):
                    found[TableName(schema.name, row.table_name).listed] = entry
        return dict(sorted(found.items()))

    def get(self, table: TableName, *, is_changed: bool = False) -> OwnTable | None:
        """One table; ``None`` when it has no row that counts.

        :param is_changed: whether nobody else may change it before the end of the transaction.
        """
        entry = self._row(table, is_changed=is_changed)
        return None if entry is None or self._is_left(table, entry) else entry

    def put(self, table: TableName, entry: OwnTable) -> None:
        """Write what the row holds from now on; it is new, or of the same kind."""
        keep_entry(self.database, table, encode(entry))

    def clear(self, table: TableName) -> None:
        """Delete the row, and the versions, of a table that CREATE TABLE AS made and somebody dropped."""
        entry = self._row(table, is_changed=True)
        if entry is not None and self._is_left(table, entry):
            forget_commits(self.database, table)
            self.remove(table)

    def _row(self, table: TableName, *, is_changed: bool) -> OwnTable | None:
        if not is_there(self.database, table.schema, ENTRIES):
            return None
        query = f"SELECT value FROM {table.entries} WHERE {_is(table)}{' FOR UPDATE' if is_changed else ''}"
        try:
            return next((_entry(row.value, table) for row in self.database.rows(query)), None)
        except PostgresError as error:
            if error.sqlstate != NO_PRIVILEGE:
                raise
            raise no_right_on_own(self.database.user, table) from error

    def _is_left(self, table: TableName, entry: OwnTable) -> bool:
        return isinstance(entry, CatalogTable) and not is_made_here(self.database, table)

    def rename(self, table: TableName, renamed: TableName) -> None:
        """Give a row the name of another table of the same schema."""
        self.database.run(f"UPDATE {table.entries} SET table_name = {literal(renamed.table)} WHERE {_is(table)}")

    def remove(self, table: TableName) -> None:
        """Delete a row."""
        self.database.run(f"DELETE FROM {table.entries} WHERE {_is(table)}")


def _is(table: TableName) -> str:
    return f"table_name = {literal(table.table)}"


def _entry(value: Mapping[str, Any], table: TableName) -> OwnTable:
    entry = decode(value["kind"], value["value"], table.listed)
    if not isinstance(entry, OwnTable):
        raise TypeError(f"{value['kind']} is nothing that is made here")
    return entry
