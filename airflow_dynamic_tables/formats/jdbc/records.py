"""What the table of commits says: the versions of a table, and the tokens whose commits can no longer land."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.clients.postgres.names import COMMITS, TableName
from airflow_dynamic_tables.clients.postgres.own_tables import TRANSACTION, is_there
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, literal
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.versions import Version

_KEPT = 1_000
"""How many rows are kept of a table, for the outcome of refreshes that ended side by side."""


@dataclass(frozen=True, slots=True)
class Record:
    """A version, and what the table was like after its commit.

    ``oid`` is the server's own number of the table, ``has_rows`` whether it had any, ``transaction`` the number of the one that
    wrote the row, which is filled in when it is written.
    """

    version: Version
    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...]
    oid: int
    has_rows: bool
    transaction: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look finds: the last row of the table of commits (0: none), whose number compare-and-swap goes by, the latest
    version, and whether a token is fenced off.
    """

    last: int
    record: Record | None
    is_fenced: bool = False

    @property
    def number(self) -> int:
        """The number of the latest version; 0 before any."""
        return self.record.version.number if self.record is not None else 0


def look(database: OpenDatabase, table: TableName, token: str = "") -> Seen:
    """What the table of commits says of a table now, and of one token."""
    if not is_there(database, table.schema, COMMITS):
        return Seen(0, None)
    whose = f"FROM {table.commits} WHERE table_name = {literal(table.table)}"
    is_fenced = f"coalesce(bool_or(token = {literal(token)} AND number IS NULL), false)"
    (last,) = database.rows(f"SELECT coalesce(max(id), 0) AS id, {is_fenced} AS fenced {whose}")
    latest = database.rows(f"SELECT value {whose} AND number IS NOT NULL ORDER BY id DESC LIMIT 1")
    return Seen(last.id, _record(latest[0].value) if latest else None, last.fenced)


def records(database: OpenDatabase, table: TableName) -> list[Record]:
    """All versions that are known, oldest first."""
    return _records(database, table, "number IS NOT NULL")


def record_of(database: OpenDatabase, table: TableName, token: str) -> Record | None:
    """What the commit of a token made; ``None`` when it is not known."""
    return next(iter(_records(database, table, f"number IS NOT NULL AND token = {literal(token)}")), None)


def add(database: OpenDatabase, table: TableName, record: Record) -> None:
    """Write the row of a version, in the transaction that makes it."""
    version = record.version
    value = f"{literal(_text(to_plain(record)))}::jsonb || jsonb_build_object('transaction', {TRANSACTION})"
    values = ", ".join((literal(table.table), literal(version.token), str(version.number), value))
    database.run(f"INSERT INTO {table.commits} (table_name, token, number, value) VALUES ({values})")
    whose = f"FROM {table.commits} WHERE table_name = {literal(table.table)}"
    database.run(f"DELETE {whose} AND id <= (SELECT id {whose} ORDER BY id DESC OFFSET {_KEPT} LIMIT 1)")


def fence(database: OpenDatabase, table: TableName, token: str) -> None:
    """Write that the commit of a token is given up, unless it landed."""
    values = f"({literal(table.table)}, {literal(token)})"
    database.run(f"INSERT INTO {table.commits} (table_name, token) VALUES {values} ON CONFLICT DO NOTHING")


def _records(database: OpenDatabase, table: TableName, condition: str) -> list[Record]:
    if not is_there(database, table.schema, COMMITS):
        return []
    rows = f"SELECT value FROM {table.commits} WHERE table_name = {literal(table.table)} AND {condition} ORDER BY id"
    return [_record(row.value) for row in database.rows(rows)]


def _text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


def _record(value: Mapping[str, Any]) -> Record:
    return from_plain(Record, value)
