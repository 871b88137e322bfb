"""A worker that dies at any statement of a commit leaves the old rows or the new ones, and the row that tells which."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from airflow_dynamic_tables.clients.postgres.server import OpenDatabase
from airflow_dynamic_tables.exceptions import CommitRejectedError
from tests.support.benches.jdbc import JdbcBench, table_of

pytestmark = pytest.mark.postgres

STEP = 5
"""A kill at every fifth statement: at all of them it takes a minute."""


def killed(statement: int, work: Callable[[], object]) -> bool:
    """Do something in a process of its own, which is killed before a statement goes to the server; False when it ended before."""
    child = os.fork()
    if child == 0:
        execute, done = OpenDatabase._execute, [0]

        def counted(self: OpenDatabase, *arguments: object) -> object:
            done[0] += 1
            if done[0] == statement:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(self, *arguments)  # type: ignore[arg-type]

        OpenDatabase._execute = counted  # type: ignore[method-assign,assignment]
        try:
            work()
        finally:
            os._exit(0)  # nothing of pytest's is ended here
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def wait_for_end(bench: JdbcBench) -> None:
    """Until the server has noticed that its client is dead."""
    query = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND pid <> pg_backend_pid()"
    with psycopg.connect(bench.url, autocommit=True) as connection:
        deadline = time.monotonic() + 60
        while connection.execute(query, (str(table_of(bench)),)).fetchone() != (0,) and time.monotonic() < deadline:
            time.sleep(0.02)


@pytest.mark.parametrize("days", [(), ("1",)], ids=["by rename", "by delete and insert"])
def test_a_kill_leaves_old_rows_or_new_ones_and_says_which(bench: JdbcBench, days: tuple[str, ...]) -> None:
    value, statement, outcomes = 1, 1, set[bool]()
    bench.refresh({"1": [value]})
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"CREATE INDEX by_n ON {table_of(bench).quoted} (n)".encode())
    while True:
        token = f"t{statement}"
        staged = bench.stage(token, *days)
        result = bench.write(staged, {"1": [value + 1]})
        was_killed = killed(statement, partial(bench.commit, staged, result))
        wait_for_end(bench)
        version = bench.stage(token, *days).outcome()
        outcomes.add(version is not None)
        value += version is not None
        assert bench.rows() == {"1": [value]}, f"killed before statement {statement}"
        if not was_killed:
            assert version is not None
            break
        staged = bench.stage(token, *days)
        staged.fence()
        if version is None:
            staged.abort()
            with pytest.raises(CommitRejectedError, match="was given up meanwhile"):
                bench.commit(staged, result)
        statement += STEP
    assert outcomes == {True, False}
    with psycopg.connect(bench.url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_indexes WHERE schemaname = %s", (table_of(bench).schema,)).fetchone()
    assert found == (5,), "the index of the table, and those of our own tables"
    assert bench.refresh({"1": [99]}).number == value + 1
