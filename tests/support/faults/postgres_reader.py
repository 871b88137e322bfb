"""A reader of a table of PostgreSQL that knows nothing of this package."""

from __future__ import annotations

import psycopg
import pyarrow as pa
from psycopg import IsolationLevel

from tests.support.faults.row_digests import rows_digest, text

_CURSOR = "in pieces, through a cursor"
_WAYS = ("in one statement", "twice in one transaction", _CURSOR)


class PostgresReader:
    """Polls a table over one connection, in one way after the other; a transaction that reads twice has to see the same."""

    def __init__(self, url: str, table: str) -> None:
        self._connection = psycopg.connect(url)
        self._query = f"SELECT p, n FROM {table}".encode()
        self._polls = 0

    def poll(self) -> tuple[str, str]:
        way = _WAYS[self._polls % len(_WAYS)]
        self._polls += 1
        self._connection.isolation_level = IsolationLevel.READ_COMMITTED if way == _WAYS[0] else IsolationLevel.REPEATABLE_READ
        with self._connection.transaction():
            seen = self._read(way)
            if way != _WAYS[0] and (again := self._read(way)) != seen:
                raise ValueError(f"first {seen}, then {again} in one transaction")
        return way, seen

    def close(self) -> list[str]:
        self._connection.close()
        return []

    def _read(self, way: str) -> str:
        if way == _CURSOR:
            with self._connection.cursor("pieces") as cursor:
                cursor.itersize = 7
                rows = [*cursor.execute(self._query)]
        else:
            rows = self._connection.execute(self._query).fetchall()
        return text(rows_digest(pa.table({"p": [row[0] for row in rows], "n": [row[1] for row in rows]})))
