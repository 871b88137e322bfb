"""What other sessions do to a table of ours: they read it, lock it, empty it, drop it; and connections break."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel

from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, StageRejectedError
from tests.formats.postgres.conftest import Others
from tests.support.benches.jdbc import JdbcBench, table_of, write_rows
from tests.support.benches.staging import COLUMNS

pytestmark = pytest.mark.postgres

ROWS = 2_000
"""Rows of each version; the sum of a version's numbers tells which one it is, and whether it is whole."""


def refresh(bench: JdbcBench, number: int) -> None:
    staged = bench.stage(f"t{number}")
    bench.commit(staged, write_rows(bench.url, staged, COLUMNS, [["1", number]] * ROWS))


def watch(
    bench: JdbcBench, level: IsolationLevel, is_over: threading.Event, seen: list[tuple[float, set[int]]], failures: list[str]
) -> None:
    """Read twice in a transaction, again and again; note how long each took and what was there."""
    query = f"SELECT count(*), min(n), max(n) FROM {table_of(bench).quoted}".encode()
    with psycopg.connect(bench.url) as connection:
        connection.isolation_level = level
        while not is_over.is_set():
            numbers: set[int] = set()
            began = time.monotonic()
            with connection.transaction():
                for _ in range(2):
                    row = connection.execute(query).fetchone()
                    assert row is not None
                    if row[0] != ROWS or row[1] != row[2]:
                        failures.append(f"{level.name} saw {row}")
                    numbers.add(row[1])
            seen.append((time.monotonic() - began, numbers))
            if level is IsolationLevel.REPEATABLE_READ and len(numbers) > 1:
                failures.append(f"one transaction saw {numbers}")


@pytest.mark.sampled
@pytest.mark.parametrize("stays", [False, True], ids=["by rename", "by delete and insert"])
def test_readers_see_one_version_whatever_their_isolation(bench: JdbcBench, stays: bool) -> None:
    refresh(bench, 0)
    if stays:
        with psycopg.connect(bench.url) as connection:
            connection.execute(f"CREATE VIEW {table_of(bench).schema}.v AS SELECT 1 FROM {table_of(bench).quoted}".encode())
    is_over, failures = threading.Event(), list[str]()
    seen: list[tuple[float, set[int]]] = []
    levels = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ] * 2
    readers = [threading.Thread(target=watch, args=(bench, level, is_over, seen, failures)) for level in levels]
    for reader in readers:
        reader.start()
    try:
        for number in range(1, 8):
            refresh(bench, number)
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    assert not failures
    assert set().union(*(numbers for _, numbers in seen)) >= {0, 7} or len(seen) < 20


def test_a_reader_whose_snapshot_is_older_than_the_stage_sees_the_old_rows_whole(bench: JdbcBench, others: Others) -> None:
    """It has not read the table yet, so it holds no lock; in a table that takes the place it would see no rows at all."""
    refresh(bench, 0)
    reader = others("report")
    reader.isolation_level = IsolationLevel.REPEATABLE_READ
    reader.execute("SELECT 1")
    refresh(bench, 1)
    assert reader.execute(f"SELECT count(*), max(n) FROM {table_of(bench).quoted}".encode()).fetchone() == (ROWS, 0)
    assert bench.rows() == {"1": [1] * ROWS}


def test_a_reader_that_goes_on_and_on_keeps_no_refresh_waiting(bench: JdbcBench, others: Others) -> None:
    refresh(bench, 0)
    others("report").execute(f"SELECT 1 FROM {table_of(bench).quoted}".encode())
    refresh(bench, 1)
    assert bench.rows() == {"1": [1] * ROWS}


LOCKS = {
    "whole table": "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
    "writers": "LOCK TABLE {table} IN SHARE MODE",
    "a row": "SELECT * FROM {table} LIMIT 1 FOR UPDATE",
    "open changes": "UPDATE {table} SET n = n + 1",
}


@pytest.mark.sampled
@pytest.mark.parametrize("statement", LOCKS.values(), ids=LOCKS)
def test_who_keeps_a_commit_waiting_is_named(hasty: JdbcBench, others: Others, statement: str) -> None:
    hasty.refresh({"1": [1]})
    sleeper = others("nightly report")
    locked = statement.format(table=table_of(hasty).quoted)
    sleeper.execute(locked.encode())
    staged = hasty.stage("t2", "1")
    result = hasty.write(staged, {"1": [2]})
    began = time.monotonic()
    with pytest.raises(CommitRejectedError) as refused:
        hasty.commit(staged, result)
    assert time.monotonic() - began < 60
    assert re.fullmatch(
        rf"{table_of(hasty)} is locked by pid {sleeper.info.backend_pid} \(user postgres, application nightly report, "
        rf"idle in transaction since \d{{4}}-.*, query: {re.escape(locked)}\)\. "
        r"The commit of t2 waited in vain and changed nothing; end that transaction, or try again later\.",
        str(refused.value),
    )
    assert staged.outcome() is None
    sleeper.rollback()
    assert hasty.rows() == {"1": [1]}
    assert hasty.commit(staged, result).number == 2
    assert hasty.rows() == {"1": [2]}


def test_who_keeps_a_stage_from_being_dropped_is_named(hasty: JdbcBench, others: Others) -> None:
    staged = hasty.stage("t1")
    result = hasty.write(staged, {"1": [1]})
    sink = staged.sink()
    assert sink is not None
    zombie = others("a job")
    zombie.execute(f"INSERT INTO {sink.table} VALUES ('2', 2)".encode())
    with pytest.raises(CommitRejectedError, match=r"revenue__stage_t1 is locked by pid \d+ \(user postgres, application a job"):
        hasty.commit(staged, result)
    with pytest.raises(ConflictError, match=r"application a job.*Dropping a stage of .*revenue waited in vain"):
        staged.abort()
    zombie.commit()
    with pytest.raises(StageRejectedError, match="hold 2 rows, the job wrote 1"):
        hasty.commit(staged, result)
    staged.abort()
    assert hasty.table.current() is None


def broken(monkeypatch: pytest.MonkeyPatch, bench: JdbcBench, when: str) -> None:
    """Let the connection of the next transaction break when it commits, or right after that."""
    from sqlalchemy import Connection

    commit = Connection.commit

    def cut(connection: Connection) -> None:
        monkeypatch.setattr(Connection, "commit", commit)
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        if when == "after":
            commit(connection)
        with psycopg.connect(bench.url, autocommit=True) as killer:
            killer.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        connection.exec_driver_sql("SELECT 1") if when == "after" else commit(connection)

    monkeypatch.setattr(Connection, "commit", cut)


@pytest.mark.parametrize("when", ["before", "after"])
def test_whether_a_commit_landed_whose_answer_was_lost_is_looked_up(
    bench: JdbcBench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    broken(monkeypatch, bench, when)
    asked: list[int] = []
    version = bench.commit(staged, result, lambda: asked.append(1))
    assert version == staged.outcome()
    assert len(asked) == (1 if when == "after" else 2), "what did not land is committed anew"
    assert bench.rows() == {"1": [2]}
    assert [kept.number for kept in bench.table.versions()] == [1, 2]


def test_a_server_that_is_gone_before_the_commit_has_not_committed(bench: JdbcBench, others: Others) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    killer = others("killer")
    killer.autocommit = True
    threads: list[threading.Thread] = []

    def kill() -> None:
        sleeper = others("sleeper")
        sleeper.execute(f"LOCK TABLE {table_of(bench).quoted} IN SHARE MODE".encode())
        threads.append(threading.Thread(target=end_waiting))
        threads[0].start()

    def end_waiting() -> None:
        ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        deadline = time.monotonic() + 60
        while not killer.execute(ended, (str(table_of(bench)),)).fetchall() and time.monotonic() < deadline:
            time.sleep(0.05)

    with pytest.raises(CommitRejectedError, match="was refused, and changed nothing"):
        bench.commit(staged, result, kill)
    threads[0].join()
    assert staged.outcome() is None
    assert bench.rows() == {"1": [1]}


MADE_ANEW = "which dropped the table and recreated it"

UNDONE: dict[str, tuple[str, str]] = {
    "emptied": ("TRUNCATE {table}", "which emptied the table"),
    "deleted": ("DELETE FROM {table}", "which emptied the table"),
    "dropped": ("DROP TABLE {table}", "and the table is gone"),
    "made anew": (
        "CREATE TABLE copy_ AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE copy_ RENAME TO revenue",
        MADE_ANEW,
    ),
}


@pytest.mark.parametrize(("statements", "how"), UNDONE.values(), ids=UNDONE)
def test_what_somebody_does_to_a_whole_table_is_noticed(bench: JdbcBench, statements: str, how: str) -> None:
    bench.refresh({"1": [1]})
    assert bench.table.undone() == []
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"SET search_path = {table_of(bench).schema}".encode())
        for statement in statements.split("; "):
            connection.execute(statement.format(table=table_of(bench).quoted).encode())
    (undone,) = bench.table.undone()
    assert how in undone.how
    assert undone.for_good == (how == MADE_ANEW)
    if undone.for_good:
        return  # test_made_anew tells what goes on
    assert bench.refresh({"1": [2]}).number == 2
    assert bench.rows() == {"1": [2]}
    assert bench.table.undone() == []


def test_a_vacuum_of_the_whole_table_changes_nothing(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute(f"VACUUM FULL {table_of(bench).quoted}".encode())
    assert bench.table.undone() == []


def test_a_source_that_was_bound_keeps_no_commit_from_the_short_way(bench: JdbcBench) -> None:
    """What the job read its sources at is let go of before its rows are published."""
    refresh(bench, 0)
    server: PostgresServer = bench.store.server  # type: ignore[attr-defined]
    server.export_snapshot(bench.path.database)
    before = oid(bench)
    staged = bench.stage("t1")
    bench.commit(staged, write_rows(bench.url, staged, COLUMNS, [["1", 1]]))
    assert oid(bench) != before


def oid(bench: JdbcBench) -> int:
    with psycopg.connect(bench.url) as connection:
        row = connection.execute("SELECT %s::regclass::oid::bigint", (str(table_of(bench)),)).fetchone()
    assert row is not None
    return int(row[0])


def orphans(bench: JdbcBench, *held: str) -> tuple[int, int]:
    deleted = bench.table.delete_orphans(datetime.now(UTC) + timedelta(days=1), lambda: held)
    return deleted.files, deleted.bytes


def stages(bench: JdbcBench) -> list[str]:
    query = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relname LIKE '%%\\_\\_stage\\_%%' ORDER BY 1"
    with psycopg.connect(bench.url) as connection:
        return [row[0] for row in connection.execute(query, (table_of(bench).schema,))]


def test_only_stages_of_refreshes_that_are_over_are_swept(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    living, dead = bench.stage("living"), bench.stage("dead")
    bench.write(living, {"2": [2]})
    bench.write(dead, {"3": [3]})
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"CREATE TABLE {table_of(bench).schema}.revenue__stage_mine (n int)".encode())
    assert bench.table.delete_orphans(datetime.now(UTC) - timedelta(days=1), tuple).files == 0
    files, size = orphans(bench, living.begin())
    assert (files, size > 0) == (2, True)
    assert stages(bench) == ["revenue__stage_living", "revenue__stage_mine"]
    assert not Path(dead.begin().removeprefix("file://")).exists()
    assert orphans(bench, living.begin()) == (0, 0)


def test_a_stage_that_a_dead_job_makes_later_is_swept_at_last(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    token = "0b0b0b0b-0000-4000-8000-000000000001"
    with psycopg.connect(bench.url) as connection:
        connection.execute(f'CREATE TABLE {table_of(bench).schema}."revenue__stage_{token}" (n int)'.encode())
    assert orphans(bench) == (0, 0), "nobody knows how old it is"
    assert bench.table.delete_orphans(datetime.now(UTC) - timedelta(days=1), tuple).files == 0
    assert orphans(bench)[0] == 1
    assert stages(bench) == []


@pytest.mark.parametrize("name", ["r" * 38, "r" * 35], ids=len)
def test_a_stage_of_a_table_with_a_longer_name_is_not_swept(bench: JdbcBench, name: str) -> None:
    schema = table_of(bench).schema
    bench.path = type(bench.path)(bench.path.database, f"{schema}.{name}{'𝄞' * 5}")
    staged = bench.stage("0b0b0b0b-0000-4000-8000-000000000001")
    result = bench.write(staged, {"1": [1]})
    bench.path = type(bench.path)(bench.path.database, f"{schema}.{name}")
    assert [orphans(bench)[0] for _ in range(2)] == [0, 0]
    bench.path = type(bench.path)(bench.path.database, f"{schema}.{name}{'𝄞' * 5}")
    bench.commit(staged, result)
    assert bench.rows() == {"1": [1]}


def test_names_of_stages_are_cut_where_they_would_be_the_same(bench: JdbcBench) -> None:
    long = "r" * 63
    bench.path = type(bench.path)(bench.path.database, f"{table_of(bench).schema}.{long}")
    one, two = bench.stage("a" * 40), bench.stage("a" * 39 + "b")
    results = [bench.write(one, {"1": [1]}), bench.write(two, {"1": [2]})]
    for staged, result in zip((one, two), results, strict=True):
        bench.commit(staged, result)
    assert bench.rows() == {"1": [2]}
