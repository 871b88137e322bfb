"""Tables of a PostgreSQL database as any client sees and changes them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from airflow_dynamic_tables.clients.postgres.ddl import COMMITS, STAGE
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from tests.support.faults.model.lakes.base import Lake, Seen, rows_of
from tests.support.faults.model.state import Row, Rows
from tests.support.faults.model.strikes import END_CONNECTIONS, FILE
from tests.support.faults.victims import REVENUE, Site

_TABLES = "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"


class JdbcLake(Lake):
    """The tables of the one database of a site; only their current rows can be read."""

    format = "jdbc"
    is_served = True
    kept = 1
    points = (FILE, "statement", "statement", "statement", "sent", "sent", "swap", "swapped", "landed")
    strikes = ("kill", "kill", "cut", "cut", "stop", "stop", "full")

    def __init__(self, site: Site) -> None:
        assert site.tables_url is not None
        self._url = site.tables_url
        self._stages = Path(site.home, "warehouse")

    @property
    def table(self) -> TableIdentifier:
        return REVENUE

    def versions(self, name: str) -> list[Seen]:
        if not {name, COMMITS} <= self._tables():
            return []
        told = self._ask(f"SELECT value FROM {COMMITS} WHERE table_name = '{name}' AND number IS NOT NULL ORDER BY number")
        return [_seen(row["value"]["version"]) for row in told]

    def rows(self, name: str, snapshot: str | None = None) -> Rows:  # noqa: ARG002 - only the current one can be read
        return rows_of(self._ask(f"SELECT * FROM {name}")) if name in self._tables() else {}

    def problems(self, name: str) -> list[str]:  # noqa: ARG002 - a row that is missing shows in the rows
        return []

    def left_over(self, name: str) -> list[str]:
        """See :meth:`Lake.left_over`: stages, and what is in their folders."""
        tables = sorted(table for table in self._tables() if table.startswith(f"{name}{STAGE}"))
        return [*tables, *(str(file) for file in self._stages.rglob("_stages/**/*") if file.is_file())]

    def append(self, name: str, day: str, row: Row) -> None:
        number, width = row
        columns = ["ds", "n", *(f"c{place}" for place in range(1, width + 1))]
        values = ", ".join([f"'{day}'", *[str(number)] * (1 + width)])
        self._run(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values})")

    def delete(self, name: str, day: str) -> None:
        self._run(f"DELETE FROM {name} WHERE ds = '{day}'")

    def compact(self, name: str) -> None:
        self._run(f"VACUUM FULL {name}")

    def empty(self, name: str) -> None:
        self._run(f"TRUNCATE {name}")

    def lose(self, name: str) -> None:
        self._run(f"DROP TABLE {name}")

    def disconnect(self) -> None:
        self._run(END_CONNECTIONS)

    def _tables(self) -> set[str]:
        return {row["name"] for row in self._ask(_TABLES)}

    def _ask(self, query: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._url, row_factory=dict_row) as connection:
            return connection.execute(query.encode()).fetchall()

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True, options="-c lock_timeout=30s") as connection:
            connection.execute(statement.encode())


def _seen(version: dict[str, Any]) -> Seen:
    fresh = version.get("data_timestamp")
    return Seen(version["number"], version["token"], datetime.fromisoformat(fresh) if fresh else None, version["snapshot"])
