"""Tables of a PostgreSQL database: locks and their holders, columns, commits and catalog entries, privileges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.clients.postgres.ddl import COMMITS, ENTRIES, TableName, is_own, spark_type
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer, literal, quote
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, ConflictError

LOCK_NOT_AVAILABLE = "55P03"
"""SQLSTATE of a lock timeout."""

_WHO = """
SELECT a.pid, a.usename AS name, a.application_name AS application, a.state,
  date_trunc('second', coalesce(a.xact_start, a.backend_start))::text AS since, left(a.query, 200) AS query
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND ({condition})
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 5
"""

_ON_TABLES = "l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"

_KEY = "hashtextextended(%(name)s, 0)"

_HOLD = f"""
{_ON_TABLES} AND l.relation = to_regclass(%(table)s)::oid
OR l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = {_KEY}
"""
"""Sessions that lock a table or its commits."""

_MAKE = f"""
{_ON_TABLES} AND l.mode = 'AccessExclusiveLock' AND to_regclass(%(table)s) IS NULL
AND NOT EXISTS (SELECT 1 FROM pg_class WHERE oid = l.relation)
"""
"""Sessions that hold a lock on an uncommitted new table, which is invisible to others, including its name."""


def lock_commits(database: OpenDatabase, table: TableName) -> None:
    """Lock the commits of a table until the end of this transaction, waiting for a running one."""
    database.run(f"SELECT pg_advisory_xact_lock({_KEY})", {"name": _key_name(table)})


@contextmanager
def named_holders(
    server: PostgresServer, database: str, table: TableName, doing: str, error: type[Exception] = ConflictError
) -> Iterator[None]:
    """Name the holders of a lock when the body times out waiting for it."""
    try:
        yield
    except PostgresError as refused:
        if refused.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        if locked_by := _who(server, database, table, _HOLD):
            what = f"is locked by {'; '.join(locked_by)}"
        elif made_by := _who(server, database, table, _MAKE):
            what = f"is being made, as it seems, by {'; '.join(made_by)}"
        else:
            what = "is locked by a session that has ended meanwhile"
        todo = "end that transaction, or try again later"
        raise error(f"{table} {what}. {doing} waited in vain and changed nothing; {todo}.") from refused


def _who(server: PostgresServer, database: str, table: TableName, condition: str) -> list[str]:
    """A description of each session with a lock that matches a condition; empty when the server cannot be reached."""
    query, parameters = _WHO.format(condition=condition), {"table": table.quoted, "name": _key_name(table)}
    try:
        with server.connected(database) as opened:
            rows = opened.rows(query, parameters)
    except CatalogUnavailableError:
        return []
    return [
        f"pid {row.pid} (user {row.name}, application {row.application or 'without a name'}, {row.state or 'state unknown'} "
        f"since {row.since}, query: {' '.join((row.query or '').split())})"
        for row in rows
    ]


def _key_name(table: TableName) -> str:
    return f"airflow-dynamic-tables {table}"


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
    """One table or view; ``oid`` is the server's object id."""

    schema: str
    name: str
    oid: int
    comment: str | None

    @property
    def listed(self) -> str:
        """The table's name in a catalog."""
        return self.name if self.schema == _PUBLIC else f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The qualified name in SQL."""
        return quote(self.schema, self.name)


def list_databases(server: PostgresServer, through: str) -> list[str]:
    """The databases of a server, sorted."""
    with server.connected(through) as database:
        return sorted(row.name for row in database.rows(_DATABASES))


def list_tables(database: OpenDatabase) -> list[PostgresTable]:
    """Tables and views of a database, without this package's internal tables."""
    rows = (row for row in database.rows(_TABLES) if not is_own(row.name))
    return [PostgresTable(row.schema, row.name, row.oid, row.comment) for row in rows]


def find_table(database: OpenDatabase, name: str) -> PostgresTable | None:
    """The table of that name, as listed or qualified by its schema, even ``public``; ``None`` when it does not exist."""
    tables = list_tables(database)
    # A dot separates schema and table, but a table in public may have a dot in its own name.
    for called in (lambda table: f"{table.schema}.{table.name}", lambda table: table.listed):
        if found := next((table for table in tables if called(table) == name), None):
            return found
    return None


def types_of(database: OpenDatabase, table: PostgresTable) -> dict[str, str]:
    """PostgreSQL types of a table's columns as formatted by ``format_type``; base types for domains."""
    return {row.name: row.type for row in database.rows(_COLUMNS, {"oid": table.oid})}


def columns_of(database: OpenDatabase, table: PostgresTable) -> tuple[Column, ...]:
    """The columns of a table, in Spark's types."""
    rows = database.rows(_COLUMNS, {"oid": table.oid})
    return tuple(Column(row.name, spark_type(row.type), not row.required, row.comment) for row in rows)


NO_PRIVILEGE = "42501"
"""SQLSTATE of a missing privilege."""

_COMMIT = """
id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, table_name text NOT NULL, token text NOT NULL, number bigint,
committed_at timestamptz NOT NULL DEFAULT now(), value jsonb, UNIQUE (table_name, token), UNIQUE (table_name, number)
"""
"""A row without number and value fences its token: the commit of that token can no longer succeed."""

_FOUND = """
SELECT count(*) AS tables FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s)
"""

TRANSACTION = "(pg_current_xact_id()::text::bigint % 4294967296)"
"""SQL for the id of the running transaction as its rows have it in ``xmin``, including after VACUUM FULL."""

_SAME = "(value ->> 'oid')::bigint = c.oid"
_RESTORED = "(value ->> 'transaction')::bigint <> latest.xmin::text::bigint"

_LOCK_TIMEOUT = 30.0
"""Seconds; creating a table takes milliseconds."""


def is_there(database: OpenDatabase, schema: str, *tables: str) -> bool:
    """Return whether a schema has all of these tables, even if the user has no access to the schema."""
    (found,) = database.rows(_FOUND, {"schema": schema, "tables": list(tables)})
    return int(found.tables) == len(tables)


def make_own_tables(server: PostgresServer, database: str, table: TableName) -> None:
    """Create the internal tables of a table's schema if they are missing; idempotent.

    :raises ConfigurationError: when the schema does not exist, or the user may not create tables in it.
    """
    with server.connected(database) as opened:
        if is_there(opened, table.schema, COMMITS, ENTRIES):
            return
        check_schema(opened, database, table)
    try:
        with server.transaction(database, _LOCK_TIMEOUT) as opened:
            # Two concurrent creations of the same table would conflict despite IF NOT EXISTS.
            opened.run("SELECT pg_advisory_xact_lock(hashtextextended('airflow-dynamic-tables', 0))")
            for statement in _statements(table):
                opened.run(statement)
    except PostgresError as error:
        if error.sqlstate != NO_PRIVILEGE:
            raise
        raise no_right(str(server.user), database, table) from error


def check_schema(opened: OpenDatabase, database: str, table: TableName) -> None:
    """Check that a database has the schema of a table."""
    if not opened.rows("SELECT 1 FROM pg_namespace WHERE nspname = %(name)s", {"name": table.schema}):
        raise ConfigurationError(
            f"Database {database} has no schema {table.schema} for {table}; make it (CREATE SCHEMA), or choose another."
        )


def no_right(user: str, database: str, table: TableName) -> ConfigurationError:
    """The error for a user who may not create tables in a schema."""
    schema = table.schema
    return ConfigurationError(
        f"User {user} may not make tables in schema {schema} of database {database}; let its owner run: GRANT USAGE, CREATE ON "
        f"SCHEMA {quote(schema)} TO {quote(user)}."
    )


def _statements(table: TableName) -> tuple[str, ...]:
    return (
        f"CREATE TABLE IF NOT EXISTS {table.commits} ({_COMMIT})",
        f"COMMENT ON TABLE {table.commits} IS 'Versions of dynamic tables of this schema (airflow-dynamic-tables)'",
        f"CREATE TABLE IF NOT EXISTS {table.entries} (table_name text PRIMARY KEY, value jsonb NOT NULL)",
        f"COMMENT ON TABLE {table.entries} IS 'What dynamic tables of this schema are made of (airflow-dynamic-tables)'",
    )


def no_right_on_own(user: str, table: TableName) -> ConfigurationError:
    """The error for a user who may not read or write the internal tables."""
    own, whom = f"{table.commits}, {table.entries}", quote(user)
    grants = (
        f"GRANT USAGE, CREATE ON SCHEMA {quote(table.schema)} TO {whom}; GRANT SELECT, INSERT, UPDATE, DELETE ON {own} TO {whom}"
    )
    what = "where what is known of tables of this schema is kept"
    return ConfigurationError(f"User {user} may not read and write {own}, {what}; let the owner run: {grants}.")


def latest_snapshot(database: OpenDatabase, table: TableName) -> str | None:
    """The id of the latest version of a table; ``None`` before the first version."""
    latest = _latest(database, table)
    return None if latest is None else str(latest["version"]["snapshot"])


def latest_partition_keys(database: OpenDatabase, table: TableName) -> tuple[str, ...]:
    """The partition keys of the latest version of a table; empty before the first version."""
    latest = _latest(database, table)
    return () if latest is None else tuple(latest["partition_keys"])


def _latest(database: OpenDatabase, table: TableName) -> dict[str, Any] | None:
    """The stored record of a table's latest version, a ``formats.postgres.records.Record`` as plain data."""
    if not is_there(database, table.schema, COMMITS):
        return None
    rows = database.rows(f"SELECT value FROM {table.commits} WHERE {_versions_of(table)} ORDER BY id DESC LIMIT 1")
    return next((row.value for row in rows), None)


def is_made_here(database: OpenDatabase, table: TableName) -> bool:
    """Return whether a table is the one of the latest commit, and was not replaced since.

    The table's oid identifies it, except when the commit's row was restored from a dump, because restored objects have new oids.
    Such a row was written by another transaction than the one it records; the table is then taken for the restored one.
    """
    if not is_there(database, table.schema, COMMITS):
        return False
    latest = f"SELECT value, xmin FROM {table.commits} WHERE {_versions_of(table)} ORDER BY id DESC LIMIT 1"
    tells_of_it = f"{_is_it(table)} AND ({_SAME} OR {_RESTORED})"
    return bool(database.rows(f"SELECT 1 FROM ({latest}) AS latest, pg_class c WHERE {tells_of_it}"))


def tie_commits(database: OpenDatabase, table: TableName) -> None:
    """Bind the latest commit to the table that has the name now, or, without such a table, keep its recorded table."""
    latest = f"SELECT max(id) FROM {table.commits} WHERE {_versions_of(table)}"
    number = f"(SELECT c.oid::bigint FROM pg_class c WHERE {_is_it(table)})"
    now = f"jsonb_strip_nulls(jsonb_build_object('oid', {number}, 'transaction', {TRANSACTION}))"
    database.run(f"UPDATE {table.commits} SET value = value || {now} WHERE id = ({latest})")


def _versions_of(table: TableName) -> str:
    return f"table_name = {literal(table.table)} AND number IS NOT NULL"


def _is_it(table: TableName) -> str:
    """SQL condition that matches a table's row ``c`` of ``pg_class``."""
    return f"c.oid = to_regclass({literal(table.quoted)}) AND c.relkind IN ('r', 'p')"


def keep_entry(database: OpenDatabase, table: TableName, entry: Mapping[str, Any]) -> bool:
    """Write or replace the catalog entry of a table.

    :param entry: as encoded by the catalog, with its ``kind``.
    :return: False when an entry of another kind exists, which is kept.
    """
    value = f"{literal(json.dumps(entry, ensure_ascii=False))}::jsonb"
    inserted = f"INSERT INTO {table.entries} AS kept (table_name, value) VALUES ({literal(table.table)}, {value})"
    is_same_kind = "kept.value ->> 'kind' = excluded.value ->> 'kind'"
    return database.run(f"{inserted} ON CONFLICT (table_name) DO UPDATE SET value = excluded.value WHERE {is_same_kind}") == 1


def kept_kind(database: OpenDatabase, table: TableName) -> str | None:
    """The kind of a table's catalog entry; ``None`` without an entry."""
    if not is_there(database, table.schema, ENTRIES):
        return None
    kinds = database.rows(f"SELECT value ->> 'kind' AS kind FROM {table.entries} WHERE table_name = {literal(table.table)}")
    return next((row.kind for row in kinds), None)


def forget_commits(database: OpenDatabase, table: TableName) -> None:
    """Delete the commits of a dropped table; fenced tokens stay fenced."""
    database.run(f"DELETE FROM {table.commits} WHERE {_versions_of(table)}")


def rename_commits(database: OpenDatabase, table: TableName, renamed: TableName) -> None:
    """Move the commits of a table, already renamed, to its new name in the same schema."""
    forget_commits(database, renamed)
    names = f"SET table_name = {literal(renamed.table)} WHERE {_versions_of(table)}"
    database.run(f"UPDATE {table.commits} {names}")
    tie_commits(database, renamed)


_OCCUPANTS = """
SELECT c.relkind::text AS kind, pg_get_userbyid(c.relowner) AS owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND c.relname = %(table)s
UNION ALL SELECT 'type', pg_get_userbyid(t.typowner)
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = %(schema)s AND t.typname = %(table)s
  AND t.typrelid = 0 AND NOT EXISTS (SELECT 1 FROM pg_type e WHERE e.typarray = t.oid)
"""
"""Objects that occupy a table's name. An array type does not conflict, because the server renames it."""

_KINDS_OF_TABLES = {"r": "a table", "p": "a partitioned table", "v": "a view", "m": "a materialized view", "f": "a foreign table"}
_OTHERS = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a type", "type": "a type"}

_RIGHTS = """
SELECT current_user AS name, current_setting('transaction_read_only') = 'on' AS is_read_only, pg_is_in_recovery() AS is_standby,
  has_schema_privilege(%(schema)s, 'USAGE') AND has_schema_privilege(%(schema)s, 'CREATE') AS may_create
"""

_FORBIDDEN = """
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed (privilege)
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s) AND NOT has_table_privilege(c.oid, needed.privilege)
"""


@dataclass(frozen=True, slots=True)
class Occupant:
    """An object that occupies a name: its kind for messages, whether it can be read as a table, and its owner."""

    kind: str
    is_table: bool
    owner: str


def occupant(database: OpenDatabase, name: TableName) -> Occupant | None:
    """The visible object that occupies a table's name; ``None`` without one."""
    rows = database.rows(_OCCUPANTS, {"schema": name.schema, "table": name.table})
    if not rows:
        return None
    kind = rows[0].kind
    return Occupant(_KINDS_OF_TABLES.get(kind) or _OTHERS.get(kind, "something else"), kind in _KINDS_OF_TABLES, rows[0].owner)


def check_rights(server: PostgresServer, database: str, name: TableName) -> None:
    """Check that the user may create a table and the internal tables.

    :raises ConfigurationError: when the database or schema does not exist, or the user may not write there.
    """
    known = list_databases(server, server.database or database)  # the user may lack access to `database`
    if database not in known:
        raise ConfigurationError(
            f"The server has no database {database}, and none is made here: run CREATE DATABASE there, or name one of "
            f"{', '.join(known)}."
        )
    with server.connected(database) as opened:
        check_schema(opened, database, name)
        (rights,) = opened.rows(_RIGHTS, {"schema": name.schema})
        if rights.is_read_only:
            why = "the server is a standby" if rights.is_standby else "default_transaction_read_only is on"
            raise ConfigurationError(
                f"Sessions of user {rights.name} in database {database} can only read ({why}), so {name} cannot be made; name "
                "a server, user and options that can write."
            )
        if not rights.may_create:
            raise no_right(rights.name, database, name)
        if opened.rows(_FORBIDDEN, {"schema": name.schema, "tables": [COMMITS, ENTRIES]}):
            raise no_right_on_own(rights.name, name)
