"""The tables and views of a PostgreSQL database. Those of schema ``public`` go by their own names, others by ``schema.table``."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.names import is_own
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresServer, quote
from airflow_dynamic_tables.clients.postgres.types import spark_type
from airflow_dynamic_tables.core.tables.schema import Column

_DATABASES = "SELECT datname AS name FROM pg_database WHERE datallowconn AND NOT datistemplate"
_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.oid, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')
"""
_COLUMNS = """
SELECT a.attname AS name, a.attnotnull AS required, col_description(a.attrelid, a.attnum) AS comment,
  CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END AS type
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """One table or view; ``oid`` is the server's own number of it."""

    schema: str
    name: str
    oid: int
    comment: str | None

    @property
    def listed(self) -> str:
        """The name it goes by."""
        return self.name if self.schema == _PUBLIC else f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """Its full name in SQL."""
        return quote(self.schema, self.name)


def list_databases(server: PostgresServer, through: str) -> list[str]:
    """The databases of a server, sorted.

    :param through: the database to ask.
    """
    with server.connected(through) as database:
        return sorted(row.name for row in database.rows(_DATABASES))


def list_tables(database: OpenDatabase) -> list[PostgresTable]:
    """Tables and views of a database, but for those that this package needs for itself."""
    rows = (row for row in database.rows(_TABLES) if not is_own(row.name))
    return [PostgresTable(row.schema, row.name, row.oid, row.comment) for row in rows]


def find_table(database: OpenDatabase, name: str) -> PostgresTable | None:
    """The table of that name: as it is listed, or with its schema though that is ``public``; ``None`` when it is missing."""
    tables = list_tables(database)
    # A dot parts schema and table, though somebody may have a table in public whose own name has one.
    for called in (lambda table: f"{table.schema}.{table.name}", lambda table: table.listed):
        if found := next((table for table in tables if called(table) == name), None):
            return found
    return None


def types_of(database: OpenDatabase, table: PostgresTable) -> dict[str, str]:
    """PostgreSQL's types of the columns of a table, as ``format_type`` writes them; those that domains are of."""
    return {row.name: row.type for row in database.rows(_COLUMNS, {"oid": table.oid})}


def columns_of(database: OpenDatabase, table: PostgresTable) -> tuple[Column, ...]:
    """The columns of a table, in Spark's types."""
    rows = database.rows(_COLUMNS, {"oid": table.oid})
    return tuple(Column(row.name, spark_type(row.type), not row.required, row.comment) for row in rows)
