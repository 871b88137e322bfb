"""What a catalog keeps of the dynamic tables of a PostgreSQL database: a row for each, in the schema that it is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, decode, encode
from airflow_dynamic_tables.clients.postgres.names import ENTRIES, TableName
from airflow_dynamic_tables.clients.postgres.own_tables import is_there
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, literal, quote

_SCHEMAS = """
SELECT n.nspname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(entries)s AND c.relkind = 'r'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Entries:
    """The rows of dynamic tables in one database, on one connection."""

    database: OpenDatabase

    def all(self) -> dict[str, CatalogDynamicTable]:
        """Every dynamic table by the name it goes by."""
        found: dict[str, CatalogDynamicTable] = {}
        for schema in self.database.rows(_SCHEMAS, {"entries": ENTRIES}):
            for row in self.database.rows(f"SELECT table_name, value FROM {quote(schema.name, ENTRIES)}"):
                found[TableName(schema.name, row.table_name).listed] = _entry(row.value)
        return dict(sorted(found.items()))

    def get(self, table: TableName, *, is_changed: bool = False) -> CatalogDynamicTable | None:
        """One dynamic table; ``None`` when it has no row.

        :param is_changed: whether nobody else may change it before the end of the transaction.
        """
        if not is_there(self.database, table.schema, ENTRIES):
            return None
        query = f"SELECT value FROM {table.entries} WHERE {_is(table)}{' FOR UPDATE' if is_changed else ''}"
        return next((_entry(row.value) for row in self.database.rows(query)), None)

    def add(self, table: TableName, entry: CatalogDynamicTable) -> bool:
        """Write a new row; False when there is one."""
        values = f"({literal(table.table)}, {_value(entry)})"
        return self.database.run(f"INSERT INTO {table.entries} VALUES {values} ON CONFLICT DO NOTHING") == 1

    def change(self, table: TableName, entry: CatalogDynamicTable) -> None:
        """Write what a row holds from now on."""
        self.database.run(f"UPDATE {table.entries} SET value = {_value(entry)} WHERE {_is(table)}")

    def rename(self, table: TableName, renamed: TableName) -> None:
        """Give a row the name of another table of the same schema."""
        self.database.run(f"UPDATE {table.entries} SET table_name = {literal(renamed.table)} WHERE {_is(table)}")

    def remove(self, table: TableName) -> None:
        """Delete a row."""
        self.database.run(f"DELETE FROM {table.entries} WHERE {_is(table)}")


def _is(table: TableName) -> str:
    return f"table_name = {literal(table.table)}"


def _value(entry: CatalogDynamicTable) -> str:
    return f"{literal(json.dumps(encode(entry), ensure_ascii=False))}::jsonb"


def _entry(value: Mapping[str, Any]) -> CatalogDynamicTable:
    table = decode(value["kind"], value["value"])
    if not isinstance(table, CatalogDynamicTable):
        raise TypeError(f"{value['kind']} is no dynamic table")
    return table
