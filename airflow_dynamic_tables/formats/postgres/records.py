"""Exclusive table locks with short waits, transaction horizons, and the table of commits."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.clients.postgres.ddl import COMMITS, TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, literal
from airflow_dynamic_tables.clients.postgres.tables import LOCK_NOT_AVAILABLE, TRANSACTION, is_there
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version

_POLITE = 0.1
"""Seconds to wait for a lock at a time; queries that arrive meanwhile wait, too."""

_PAUSE = 0.3
"""Approximate seconds between two attempts."""

_XIDS = 2**32

_OLD = """
SELECT pid, usename AS name, application_name AS application, backend_xmin::text::bigint AS xmin FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Horizon:
    """A point in the server's transaction order: transactions committed before it have ids smaller than ``xid``."""

    xid: int

    @classmethod
    def now(cls, database: OpenDatabase) -> Horizon:
        """Return the current point; call it before the transaction writes."""
        (row,) = database.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid")
        return cls(row.xid)

    def older_snapshots(self, database: OpenDatabase) -> list[str]:
        """Describe the sessions that may hold a snapshot older than this point.

        After a swap, they would see an incomplete table.
        """
        database.run("SELECT pg_stat_clear_snapshot()")
        rows = database.rows(_OLD)
        return [
            f"pid {row.pid} (user {row.name}, application {row.application or 'without a name'})"
            for row in rows
            if 0 < (self.xid - row.xmin) % _XIDS < _XIDS // 2
        ]


def lock_for_itself(database: OpenDatabase, table: TableName, patience: float) -> None:
    """Lock a table exclusively; the attempts pause in between so that waiting readers proceed.

    :param patience: seconds until the last attempt.
    :raises PostgresError: if the lock was not available in time.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            with database.savepoint():
                database.run(f"SET LOCAL lock_timeout = {int(_POLITE * 1000)}")
                database.run(f"LOCK TABLE {table.quoted} IN ACCESS EXCLUSIVE MODE")
        except PostgresError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE * random.uniform(0.5, 1.5))
        else:
            return


_KEPT = 1_000
"""Number of rows kept per table, so that concurrent refreshes can look up their outcome."""


@dataclass(frozen=True, slots=True)
class Record:
    """A version, and the state of the table after its commit.

    ``oid`` is the server's id of the table, ``has_rows`` whether it had any rows, and ``transaction`` the id of the committing
    transaction, filled in on write.
    """

    version: Version
    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...]
    oid: int
    has_rows: bool
    transaction: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the table of commits.

    ``last`` is the id of its last row, the value for compare-and-swap (0: none). ``record`` is the latest version, and
    ``is_fenced`` whether the token is fenced.
    """

    last: int
    record: Record | None
    is_fenced: bool = False

    @property
    def number(self) -> int:
        """The number of the latest version; 0 before the first commit."""
        return self.record.version.number if self.record is not None else 0


def look(database: OpenDatabase, table: TableName, token: str = "") -> Seen:
    """Return the current state of a table in the table of commits, and whether a token is fenced."""
    if not is_there(database, table.schema, COMMITS):
        return Seen(0, None)
    whose = f"FROM {table.commits} WHERE table_name = {literal(table.table)}"
    is_fenced = f"coalesce(bool_or(token = {literal(token)} AND number IS NULL), false)"
    (last,) = database.rows(f"SELECT coalesce(max(id), 0) AS id, {is_fenced} AS fenced {whose}")
    latest = database.rows(f"SELECT value {whose} AND number IS NOT NULL ORDER BY id DESC LIMIT 1")
    return Seen(last.id, _record(latest[0].value) if latest else None, last.fenced)


def records(database: OpenDatabase, table: TableName) -> list[Record]:
    """Return all recorded versions, oldest first."""
    return _records(database, table, "number IS NOT NULL")


def record_of(database: OpenDatabase, table: TableName, token: str) -> Record | None:
    """Return the version committed with a token; ``None`` if it is not recorded."""
    return next(iter(_records(database, table, f"number IS NOT NULL AND token = {literal(token)}")), None)


def add(database: OpenDatabase, table: TableName, record: Record) -> None:
    """Write the row of a version, in the transaction that commits it."""
    version = record.version
    value = f"{literal(_text(to_plain(record)))}::jsonb || jsonb_build_object('transaction', {TRANSACTION})"
    values = ", ".join((literal(table.table), literal(version.token), str(version.number), value))
    database.run(f"INSERT INTO {table.commits} (table_name, token, number, value) VALUES ({values})")
    whose = f"FROM {table.commits} WHERE table_name = {literal(table.table)}"
    database.run(f"DELETE {whose} AND id <= (SELECT id {whose} ORDER BY id DESC OFFSET {_KEPT} LIMIT 1)")


def fence(database: OpenDatabase, table: TableName, token: str) -> None:
    """Record that a token is fenced, unless its commit succeeded."""
    values = f"({literal(table.table)}, {literal(token)})"
    database.run(f"INSERT INTO {table.commits} (table_name, token) VALUES {values} ON CONFLICT DO NOTHING")


def lift_fence(database: OpenDatabase, table: TableName, token: str) -> None:
    """Let later commits of a fenced token succeed. The row of the fence gets a new id, so running commits still do not."""
    fence_of_token = f"table_name = {literal(table.table)} AND token = {literal(token)} AND number IS NULL"
    database.run(f"UPDATE {table.commits} SET id = DEFAULT, token = token || ' lifted ' || id WHERE {fence_of_token}")


def _records(database: OpenDatabase, table: TableName, condition: str) -> list[Record]:
    if not is_there(database, table.schema, COMMITS):
        return []
    rows = f"SELECT value FROM {table.commits} WHERE table_name = {literal(table.table)} AND {condition} ORDER BY id"
    return [_record(row.value) for row in database.rows(rows)]


def _text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


def _record(value: Mapping[str, Any]) -> Record:
    return from_plain(Record, value)
