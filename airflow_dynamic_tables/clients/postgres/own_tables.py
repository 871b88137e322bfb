"""The tables of this package in a PostgreSQL database: made in a schema with the first dynamic table there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_dynamic_tables.clients.postgres.names import COMMITS, ENTRIES, TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer, literal, quote
from airflow_dynamic_tables.exceptions import ConfigurationError

NO_PRIVILEGE = "42501"
"""SQLSTATE of what a user may not do."""

_COMMIT = """
id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, table_name text NOT NULL, token text NOT NULL, number bigint,
committed_at timestamptz NOT NULL DEFAULT now(), value jsonb, UNIQUE (table_name, token), UNIQUE (table_name, number)
"""
"""A row without a number and a value says that the commit of its token can no longer land."""

_FOUND = """
SELECT count(*) AS tables FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s)
"""

TRANSACTION = "(pg_current_xact_id()::text::bigint % 4294967296)"
"""SQL for the number of the running transaction, as every row that it writes has it in ``xmin``, also after VACUUM FULL."""

_SAME = "(value ->> 'oid')::bigint = c.oid"
_RESTORED = "(value ->> 'transaction')::bigint <> latest.xmin::text::bigint"

_LOCK_TIMEOUT = 30.0
"""Seconds; making a table takes milliseconds."""


def is_there(database: OpenDatabase, schema: str, *tables: str) -> bool:
    """Whether a schema has all of these tables, also for somebody who may not look into it."""
    (found,) = database.rows(_FOUND, {"schema": schema, "tables": list(tables)})
    return int(found.tables) == len(tables)


def make_own_tables(server: PostgresServer, database: str, table: TableName) -> None:
    """Make the tables that tell of a table of ours, unless its schema has them; idempotent.

    :raises ConfigurationError: when there is no such schema, or nobody may make tables there.
    """
    with server.connected(database) as opened:
        if is_there(opened, table.schema, COMMITS, ENTRIES):
            return
        check_schema(opened, database, table)
    try:
        with server.transaction(database, _LOCK_TIMEOUT) as opened:
            # Two that make the same table at the same moment would disturb one another even with IF NOT EXISTS.
            opened.run("SELECT pg_advisory_xact_lock(hashtextextended('airflow-dynamic-tables', 0))")
            for statement in _statements(table):
                opened.run(statement)
    except PostgresError as error:
        if error.sqlstate != NO_PRIVILEGE:
            raise
        raise no_right(str(server.user), database, table) from error


def check_schema(opened: OpenDatabase, database: str, table: TableName) -> None:
    """Check that a database has the schema of a table.

    :raises ConfigurationError: when it has not.
    """
    if not opened.rows("SELECT 1 FROM pg_namespace WHERE nspname = %(name)s", {"name": table.schema}):
        raise ConfigurationError(
            f"Database {database} has no schema {table.schema} for {table}; make it (CREATE SCHEMA), or choose another."
        )


def no_right(user: str, database: str, table: TableName) -> ConfigurationError:
    """A user may not make tables in a schema."""
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
    """A user may not read or not write what tells of a table."""
    own, whom = f"{table.commits}, {table.entries}", quote(user)
    grants = (
        f"GRANT USAGE, CREATE ON SCHEMA {quote(table.schema)} TO {whom}; GRANT SELECT, INSERT, UPDATE, DELETE ON {own} TO {whom}"
    )
    what = "where what is known of tables of this schema is kept"
    return ConfigurationError(f"User {user} may not read and write {own}, {what}; let the owner run: {grants}.")


def latest_snapshot(database: OpenDatabase, table: TableName) -> str | None:
    """The id of the latest version of a table; ``None`` before any."""
    latest = _latest(database, table)
    return None if latest is None else str(latest["version"]["snapshot"])


def latest_partition_keys(database: OpenDatabase, table: TableName) -> tuple[str, ...]:
    """The keys by which the latest version of a table is partitioned; none before any."""
    latest = _latest(database, table)
    return () if latest is None else tuple(latest["partition_keys"])


def _latest(database: OpenDatabase, table: TableName) -> dict[str, Any] | None:
    """What was written of the latest version of a table, a ``formats.jdbc.records.Record`` as plain data."""
    if not is_there(database, table.schema, COMMITS):
        return None
    rows = database.rows(f"SELECT value FROM {table.commits} WHERE {_versions_of(table)} ORDER BY id DESC LIMIT 1")
    return next((row.value for row in rows), None)


def is_made_here(database: OpenDatabase, table: TableName) -> bool:
    """Whether the table of a name is the one that the latest commit left, and not one that somebody made since.

    The server's number of the table tells. Only where the row of that commit came with a dump does it tell nothing, as everything
    got another number: such a row was written by another transaction than the one that is named in it, and the table is taken for
    the one that came along.
    """
    if not is_there(database, table.schema, COMMITS):
        return False
    latest = f"SELECT value, xmin FROM {table.commits} WHERE {_versions_of(table)} ORDER BY id DESC LIMIT 1"
    tells_of_it = f"{_is_it(table)} AND ({_SAME} OR {_RESTORED})"
    return bool(database.rows(f"SELECT 1 FROM ({latest}) AS latest, pg_class c WHERE {tells_of_it}"))


def tie_commits(database: OpenDatabase, table: TableName) -> None:
    """Let the latest commit tell of the table that has the name now, whoever made it; without one, of the one that it told of."""
    latest = f"SELECT max(id) FROM {table.commits} WHERE {_versions_of(table)}"
    number = f"(SELECT c.oid::bigint FROM pg_class c WHERE {_is_it(table)})"
    now = f"jsonb_strip_nulls(jsonb_build_object('oid', {number}, 'transaction', {TRANSACTION}))"
    database.run(f"UPDATE {table.commits} SET value = value || {now} WHERE id = ({latest})")


def _versions_of(table: TableName) -> str:
    return f"table_name = {literal(table.table)} AND number IS NOT NULL"


def _is_it(table: TableName) -> str:
    """SQL that is true for a table's row ``c`` of ``pg_class``."""
    return f"c.oid = to_regclass({literal(table.quoted)}) AND c.relkind IN ('r', 'p')"


def keep_entry(database: OpenDatabase, table: TableName, entry: Mapping[str, Any]) -> bool:
    """Write what a catalog keeps of a table, in place of what it kept.

    :param entry: as the catalog encodes it, with its ``kind``.
    :return: False when it keeps something of another kind, which stays.
    """
    value = f"{literal(json.dumps(entry, ensure_ascii=False))}::jsonb"
    inserted = f"INSERT INTO {table.entries} AS kept (table_name, value) VALUES ({literal(table.table)}, {value})"
    is_same_kind = "kept.value ->> 'kind' = excluded.value ->> 'kind'"
    return database.run(f"{inserted} ON CONFLICT (table_name) DO UPDATE SET value = excluded.value WHERE {is_same_kind}") == 1


def kept_kind(database: OpenDatabase, table: TableName) -> str | None:
    """The kind of what a catalog keeps of a table; ``None`` when it keeps nothing."""
    if not is_there(database, table.schema, ENTRIES):
        return None
    kinds = database.rows(f"SELECT value ->> 'kind' AS kind FROM {table.entries} WHERE table_name = {literal(table.table)}")
    return next((row.kind for row in kinds), None)


def forget_commits(database: OpenDatabase, table: TableName) -> None:
    """Forget all versions of a table that is gone; what was given up before stays so."""
    database.run(f"DELETE FROM {table.commits} WHERE {_versions_of(table)}")


def rename_commits(database: OpenDatabase, table: TableName, renamed: TableName) -> None:
    """Keep the versions of a table, which has its new name already, in the same schema."""
    forget_commits(database, renamed)
    names = f"SET table_name = {literal(renamed.table)} WHERE {_versions_of(table)}"
    database.run(f"UPDATE {table.commits} {names}")
    tie_commits(database, renamed)
