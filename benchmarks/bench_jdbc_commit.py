"""The commit of a million rows in PostgreSQL: by rename and by delete and insert, and how long readers wait for it.

Needs PostgreSQL. The rival is what one would write by hand: DELETE and INSERT ... SELECT from the stage in one transaction, which
knows neither token nor version and checks nothing. ``BENCH_ROWS`` and ``BENCH_ROUNDS`` change how many.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import check, compare, interleave

from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.postgres.table import JdbcTable
from tests.support.postgres import postgres_binaries, running_postgres

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
COLUMNS = (Column("id", "bigint"), Column("customer", "string"), Column("amount", "decimal(18,2)"))
_VALUES = "i AS id, 'customer ' || i % 1000 AS customer, (i * 1.5)::numeric(18, 2) AS amount"
MADE = f"AS SELECT {_VALUES} FROM generate_series(1, {ROWS}) i"


def main() -> None:
    """Measure, and print both sides."""
    binaries = postgres_binaries()
    if binaries is None:
        sys.exit("needs PostgreSQL: apt-get install -y postgresql")
    with running_postgres(binaries) as server, tempfile.TemporaryDirectory() as folder:
        url = server.create_database("bench")
        store = PostgresStore("lake", PostgresServer(url, "the benchmark"), warehouse=f"file://{folder}")
        for name in ("renamed", "indexed", "inserted"):
            _ours(url, store, name)
        _run(url, "CREATE INDEX ON indexed (id)", "CREATE VIEW v AS SELECT id FROM inserted", f"CREATE TABLE by_hand {MADE}")
        waits: list[float] = []
        measured = interleave(
            ROUNDS,
            ours=lambda: _watched(url, store, waits),
            with_index=lambda: _ours(url, store, "indexed"),
            ours_inserted=lambda: _ours(url, store, "inserted"),
            by_hand=lambda: _by_hand(url),
        )
    check(f"Commit of {ROWS} rows by rename", measured["ours"], "s", 1)
    check("Longest wait of a reader at a rename", waits, "s", 0.2)
    compare("The same against", measured["ours"], measured["by_hand"], "delete and insert by hand")
    compare("With an index, which is built anew", measured["with_index"], measured["by_hand"], "delete and insert by hand")
    compare("Where a view depends on it", measured["ours_inserted"], measured["by_hand"], "delete and insert by hand")


def _run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _ours(url: str, store: PostgresStore, name: str) -> float:
    staged = JdbcTable(store, ObjectPath("bench", name), "").stage(str(uuid4()))
    _run(url, f"CREATE TABLE {staged.sink().table} {MADE}", "VACUUM", "CHECKPOINT")
    result = RefreshResult(staged.begin().rpartition("/")[2], "job", ROWS, (), COLUMNS)
    began = time.monotonic()
    staged.commit(CommitRequest(result, datetime.now(UTC)), lambda: None)
    return time.monotonic() - began


def _by_hand(url: str) -> float:
    _run(url, "DROP TABLE IF EXISTS staged_by_hand", f"CREATE TABLE staged_by_hand {MADE}", "VACUUM", "CHECKPOINT")
    began = time.monotonic()
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM by_hand")
        connection.execute("INSERT INTO by_hand SELECT * FROM staged_by_hand")
    return time.monotonic() - began


def _watched(url: str, store: PostgresStore, waits: list[float]) -> float:
    """A commit by rename while somebody reads one row again and again; the longest wait is noted."""
    is_over = threading.Event()
    longest = [0.0]

    def read() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not is_over.is_set():
                began = time.monotonic()
                connection.execute("SELECT * FROM renamed LIMIT 1")
                longest[0] = max(longest[0], time.monotonic() - began)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        seconds = _ours(url, store, "renamed")
    finally:
        is_over.set()
        reader.join()
    waits.append(longest[0])
    return seconds


if __name__ == "__main__":
    main()
