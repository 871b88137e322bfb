"""Locks of a PostgreSQL database: who holds one that somebody waits for in vain, and one that keeps commits apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError

LOCK_NOT_AVAILABLE = "55P03"
"""SQLSTATE of a lock that was not free in time."""

READING = ("AccessShareLock",)
"""What everybody holds who reads a table."""

_WHO = """
SELECT a.pid, a.usename AS name, a.application_name AS application, a.state,
  date_trunc('second', coalesce(a.xact_start, a.backend_start))::text AS since, left(a.query, 200) AS query
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND ({condition})
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 5
"""

_ON_TABLES = "l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"

_HOLD = f"""
{_ON_TABLES} AND l.relation = to_regclass(%(table)s)::oid AND NOT l.mode = ANY(%(harmless)s)
OR l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = %(key)s
"""

_MAKE = f"""
{_ON_TABLES} AND l.mode = 'AccessExclusiveLock' AND to_regclass(%(table)s) IS NULL
AND NOT EXISTS (SELECT 1 FROM pg_class WHERE oid = l.relation)
"""
"""What a transaction has made that is not over, is locked, and nobody else sees it: not even whether it has that name."""

_KEY = "hashtextextended(%(name)s, 0)"


def lock_commits(database: OpenDatabase, table: TableName) -> None:
    """Wait until no other commit of a table is under way; none begins before the end of this transaction."""
    database.run(f"SELECT pg_advisory_xact_lock({_KEY})", {"name": _key_name(table)})


@contextmanager
def named_holders(
    server: PostgresServer, database: str, table: TableName, doing: str, error: type[Exception] = ConflictError
) -> Iterator[None]:
    """Say who holds what the body waits for in vain.

    :param doing: what waits, for the message.
    :param error: what is raised then.
    """
    try:
        yield
    except PostgresError as refused:
        if refused.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        if locked_by := holders(server, database, table):
            what = f"is locked by {'; '.join(locked_by)}"
        elif made_by := _makers(server, database, table):
            what = f"is being made, as it seems, by {'; '.join(made_by)}"
        else:
            what = "is locked by somebody who is gone meanwhile"
        todo = "end that transaction, or try again later"
        raise error(f"{table} {what}. {doing} waited in vain and changed nothing; {todo}.") from refused


def holders(server: PostgresServer, database: str, table: TableName, harmless: tuple[str, ...] = ()) -> list[str]:
    """Who holds a lock on a table, or keeps its commits waiting: a text for each.

    :param harmless: modes of locks that do not matter.
    """
    try:
        with server.connected(database) as opened:
            (key,) = opened.rows(f"SELECT {_KEY} AS key", {"name": _key_name(table)})
            unsigned = key.key % 2**64
            signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
            return _who(opened, _HOLD, {"table": table.quoted, "harmless": list(harmless), "key": signed})
    except CatalogUnavailableError:
        return []


def _makers(server: PostgresServer, database: str, table: TableName) -> list[str]:
    """Who has made something that nobody else sees yet, maybe a table that is missing: a text for each."""
    try:
        with server.connected(database) as opened:
            return _who(opened, _MAKE, {"table": table.quoted})
    except CatalogUnavailableError:
        return []


def _who(opened: OpenDatabase, condition: str, parameters: Mapping[str, object]) -> list[str]:
    rows = opened.rows(_WHO.format(condition=condition), parameters)
    return [
        f"pid {row.pid} (user {row.name}, application {row.application or 'without a name'}, {row.state or 'state unknown'} "
        f"since {row.since}, query: {' '.join((row.query or '').split())})"
        for row in rows
    ]


def _key_name(table: TableName) -> str:
    return f"airflow-dynamic-tables {table}"
