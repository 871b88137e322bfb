"""The bench on a PostgreSQL server: every test has a schema of its own in one database that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

import psycopg
from psycopg import sql

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.clients.postgres.ddl import TableName
from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.formats.base import StagedTable
from tests.support.benches.staging import Bench

_TYPES = {"string": "text", "bigint": "bigint", "int": "integer", "double": "double precision", "date": "date"}


class JdbcBench(Bench):
    url: str = ""

    def write(
        self,
        staged: StagedTable,
        rows: dict[str, list[int]],
        columns: tuple[Column, ...] | None = None,
        first: int = 0,  # noqa: ARG002 - it has no files to number
    ) -> RefreshResult:
        columns = columns or self.columns
        values = [[_value(column, day, value) for column in columns] for day, days in rows.items() for value in days]
        result = write_rows(self.url, staged, columns, values)
        touched = tuple({"ds": day} for day in rows) if self.partition_keys else ()
        return RefreshResult(result.token, "job", result.rows, (), columns, touched)


def write_rows(url: str, staged: StagedTable, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> RefreshResult:
    """Write rows into the stage table as a job does, with a type of PostgreSQL for each of Spark's, and say so."""
    sink = staged.sink()
    assert sink is not None
    write_text(f"{staged.begin()}/_plan.json", "{}")
    made = ", ".join(f"{_quoted(column.name)} {_TYPES.get(column.type, column.type)}" for column in columns)
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {sink.table}".encode())
        connection.execute(f"CREATE TABLE {sink.table} ({made})".encode())
        with connection.cursor() as cursor, cursor.copy(f"COPY {sink.table} FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
    return RefreshResult(unquote(staged.begin().rpartition("/")[2]), "job", len(rows), (), tuple(columns))


def jdbc_bench(url: str, folder: Path, lock_timeout: float = 30.0, user: Mapping[str, str] | None = None) -> JdbcBench:
    """A bench in a new schema of a database.

    :param lock_timeout: seconds for which commits wait for others.
    :param user: in which variable a job finds the password.
    """
    schema = f"s_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    server = PostgresServer(url, "catalog lake")
    store = PostgresStore("lake", server, user or {}, f"file://{folder}/warehouse", lock_timeout)
    bench = JdbcBench(store, ObjectPath(str(server.database), f"{schema}.revenue"), format="jdbc")
    bench.url = url
    return bench


def table_of(bench: Bench) -> TableName:
    return TableName.parse(bench.path.name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(column: Column, day: str, value: int) -> object:
    if column.name == "ds":
        return day
    return value if column.type == "bigint" else f"{value}!"
