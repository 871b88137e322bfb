"""Locks of a PostgreSQL database: who holds one that somebody waits for in vain, and one that keeps commits apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, PostgresServer
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError

LOCK_NOT_AVAILABLE = "55P03"
"""SQLSTATE of a lock that was not free in time."""

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
"""Whoever has locked a table, or keeps its commits waiting."""

_MAKE = f"""
{_ON_TABLES} AND l.mode = 'AccessExclusiveLock' AND to_regclass(%(table)s) IS NULL
AND NOT EXISTS (SELECT 1 FROM pg_class WHERE oid = l.relation)
"""
"""What a transaction has made that is not over, is locked, and nobody else sees it: not even whether it has that name."""


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
        if locked_by := _who(server, database, table, _HOLD):
            what = f"is locked by {'; '.join(locked_by)}"
        elif made_by := _who(server, database, table, _MAKE):
            what = f"is being made, as it seems, by {'; '.join(made_by)}"
        else:
            what = "is locked by somebody who is gone meanwhile"
        todo = "end that transaction, or try again later"
        raise error(f"{table} {what}. {doing} waited in vain and changed nothing; {todo}.") from refused


def _who(server: PostgresServer, database: str, table: TableName, condition: str) -> list[str]:
    """Who has locks for which a condition is true: a text for each; none when the server does not say."""
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
