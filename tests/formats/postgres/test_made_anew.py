"""Whose table it is: one that others made anew under the name is never replaced, and one that came from a dump still is ours."""

from __future__ import annotations

import subprocess
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.core.versions import Base
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CommitRejectedError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
)
from tests.contracts.catalogs.samples import DYNAMIC
from tests.support.benches.jdbc import JdbcBench, table_of
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.postgres

JDBC = replace(DYNAMIC, format="jdbc", columns=())

ANEW = {
    "dropped": "DROP TABLE revenue; CREATE TABLE revenue (ds text, n bigint); INSERT INTO revenue VALUES ('9', 9)",
    "replaced by a copy": (
        "CREATE TABLE c AS SELECT '9' AS ds, 9::bigint AS n; DROP TABLE revenue; ALTER TABLE c RENAME TO revenue"
    ),
    "put aside": "ALTER TABLE revenue RENAME TO c; CREATE TABLE revenue AS SELECT '9' AS ds, 9::bigint AS n",
    "partitioned": (
        "DROP TABLE revenue; CREATE TABLE revenue (ds text, n bigint) PARTITION BY LIST (ds); "
        "CREATE TABLE rest PARTITION OF revenue DEFAULT; INSERT INTO revenue VALUES ('9', 9)"
    ),
}


def run(bench: JdbcBench, statements: str) -> None:
    """Statements of somebody else, in the schema of the table."""
    schema = table_of(bench).schema
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        for statement in statements.split("; "):
            connection.execute(statement.encode())


def anew(bench: JdbcBench) -> None:
    run(bench, ANEW["dropped"])


@pytest.mark.sampled
@pytest.mark.parametrize("days", [(), ("9",)], ids=["all rows", "a partition"])
@pytest.mark.parametrize("statements", ANEW.values(), ids=ANEW)
def test_a_table_that_others_made_anew_is_not_replaced(bench: JdbcBench, statements: str, days: tuple[str, ...]) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2", *days)
    result = bench.write(staged, {"9": [90]})
    run(bench, statements)
    refused = (
        f"{table_of(bench)} is not the table that version 1 left: another user dropped or renamed it, and made another. "
        "Rename or drop this one in PostgreSQL, and the next refresh creates the table again; or have refreshes replace its rows "
        f"from now on: dynamic-tables adopt {bench.path}."
    )
    with pytest.raises(StageRejectedError) as at_commit:
        bench.commit(staged, result)
    assert str(at_commit.value) == refused
    with pytest.raises(StageRejectedError) as before_the_job:
        bench.stage("t3").sink()
    assert str(before_the_job.value) == refused
    assert bench.rows() == {"9": [9]}
    run(bench, "ALTER TABLE revenue RENAME TO theirs")
    assert bench.commit(bench.stage("t2"), result).number == 2
    assert bench.rows() == {"9": [90]}


def test_a_table_that_is_made_anew_during_the_commit_is_not_replaced(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    with pytest.raises((StageRejectedError, CommitRejectedError)):
        bench.commit(staged, result, lambda: anew(bench))
    assert bench.rows() == {"9": [9]}


SAME = {
    "emptied": "TRUNCATE revenue",
    "rewritten": "ALTER TABLE revenue ALTER n TYPE numeric(20); ALTER TABLE revenue ALTER n TYPE bigint",
    "clustered": "CREATE INDEX by_n ON revenue (n); CLUSTER revenue USING by_n",
    "renamed to and fro": "ALTER TABLE revenue RENAME TO c; ALTER TABLE c RENAME TO revenue",
    "commits clustered": "CREATE INDEX by_token ON _dynamic_table_commits (token); CLUSTER _dynamic_table_commits USING by_token",
}


@pytest.mark.parametrize("statements", SAME.values(), ids=SAME)
def test_a_table_that_others_only_changed_is_replaced(bench: JdbcBench, statements: str) -> None:
    bench.refresh({"1": [1]})
    run(bench, statements)
    assert bench.refresh({"1": [2]}).number == 2
    run(bench, ANEW["dropped"])
    with pytest.raises(StageRejectedError, match="is not the table that version 2 left"):
        bench.refresh({"1": [3]})


def test_a_vacuum_of_the_commits_does_not_make_a_table_ours(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    anew(bench)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        for how in ("FREEZE", "FULL"):
            connection.execute(f"VACUUM ({how}) {table_of(bench).commits}".encode())
    with pytest.raises(StageRejectedError, match="is not the table that version 1 left"):
        bench.refresh({"1": [2]})


def restored(bench: JdbcBench, server: PostgresServer) -> None:
    """Dump the schema, drop it, and read it back in."""
    schema = table_of(bench).schema
    dump = subprocess.run([str(server.binaries / "pg_dump"), "-n", schema, bench.url], capture_output=True, check=True).stdout
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
    loaded = [str(server.binaries / "psql"), "-qX", "-v", "ON_ERROR_STOP=1", bench.url]
    subprocess.run(loaded, input=dump, capture_output=True, check=True)


def test_a_table_of_a_restored_database_is_ours_and_one_made_after_its_next_refresh_is_not(
    bench: JdbcBench, postgres: PostgresServer
) -> None:
    bench.refresh({"1": [1]})
    restored(bench, postgres)
    assert bench.table.undone() == []
    assert bench.refresh({"1": [2]}, "1").number == 2
    restored(bench, postgres)
    assert bench.refresh({"1": [3]}).number == 3
    assert bench.rows() == {"1": [3]}
    anew(bench)
    with pytest.raises(StageRejectedError, match="is not the table that version 3 left"):
        bench.refresh({"1": [4]})


@pytest.fixture
def catalog(bench: JdbcBench) -> JdbcCatalog:
    """A catalog that has the table of the bench, which is refreshed once."""
    made = JdbcCatalog("pg", bench.url, warehouse="file:///nowhere")
    made.create_table(bench.path, JDBC)
    bench.refresh({"1": [1]})
    return made


def test_what_was_made_anew_is_adopted_and_then_replaced(bench: JdbcBench, catalog: JdbcCatalog) -> None:
    with closing(catalog):
        assert not catalog.adopt_table(bench.path, JDBC), "it is ours already"
        anew(bench)
        assert catalog.adopt_table(bench.path, JDBC)
        assert bench.rows() == {"9": [9]}
        assert bench.table.undone() == []
        assert bench.refresh({"1": [2]}).number == 2
        assert bench.rows() == {"1": [2]}
        run(bench, "DROP TABLE revenue")
        with pytest.raises(TableNotFoundError):
            catalog.adopt_table(bench.path, JDBC)


def test_a_table_that_never_was_refreshed_is_not_adopted(bench: JdbcBench) -> None:
    with closing(JdbcCatalog("pg", bench.url)) as catalog:
        catalog.create_table(bench.path, JDBC)
        run(bench, "CREATE TABLE revenue (ds text, n bigint)")
        with pytest.raises(UnsupportedError) as refused:
            catalog.adopt_table(bench.path, JDBC)
        assert str(refused.value) == (
            f"{bench.path} was not made by a refresh, and catalog pg adopts only tables that replace a refreshed table; "
            "choose another name for the table, or rename this one."
        )


def test_what_was_made_anew_is_neither_renamed_nor_dropped(bench: JdbcBench, catalog: JdbcCatalog) -> None:
    schema = table_of(bench).schema
    with closing(catalog):
        anew(bench)
        with pytest.raises(CatalogError) as refused:
            catalog.rename_table(bench.path, f"{schema}.other")
        assert str(refused.value) == (
            f"{bench.path} is not renamed: another user dropped it and made another table of that name. Rename or drop that one "
            f"in PostgreSQL first, or adopt it: dynamic-tables adopt {bench.path}."
        )
        catalog.drop_table(bench.path)
        run(bench, "INSERT INTO revenue VALUES ('10', 10)")


def test_a_table_that_others_dropped_is_not_as_fresh_as_before(bench: JdbcBench) -> None:
    """A refresh of one day makes a table of one day, which said that it was fresh up to the time of the dropped one."""
    bench.refresh({"1": [1], "2": [2]})
    run(bench, "DROP TABLE revenue")
    staged = bench.stage("t2", "1")
    version = staged.commit(replace(bench.request(bench.write(staged, {"1": [1]})), data_timestamp=None), lambda: None)
    assert version.data_timestamp is None
    assert bench.rows() == {"1": [1]}


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_a_restored_table_is_renamed_and_dropped(
    bench: JdbcBench, catalog: JdbcCatalog, postgres: PostgresServer, change: str
) -> None:
    schema = table_of(bench).schema
    restored(bench, postgres)
    with closing(catalog):
        if change == "drop":
            catalog.drop_table(bench.path)
            assert not catalog.table_exists(bench.path)
            return
        catalog.rename_table(bench.path, f"{schema}.other")
        bench.path = type(bench.path)(bench.path.database, f"{schema}.other")
        assert bench.refresh({"1": [2]}).number == 2
        assert bench.rows() == {"1": [2]}


def test_a_table_that_others_make_under_the_new_name_of_one_that_was_gone_is_theirs(
    bench: JdbcBench, catalog: JdbcCatalog
) -> None:
    """The row of the last commit was written anew when it got the name, as if it came from a dump."""
    schema = table_of(bench).schema
    with closing(catalog):
        run(bench, "ALTER TABLE revenue RENAME TO aside")
        catalog.rename_table(bench.path, f"{schema}.other")
        bench.path = type(bench.path)(bench.path.database, f"{schema}.other")
        run(bench, "CREATE TABLE other (ds text, n bigint); INSERT INTO other VALUES ('9', 9)")
        with pytest.raises(StageRejectedError, match="is not the table that version 1 left"):
            bench.refresh({"1": [2]})
        assert bench.rows() == {"9": [9]}
        run(bench, "DROP TABLE other; ALTER TABLE aside RENAME TO other")
        assert bench.refresh({"1": [2]}).number == 2
        run(bench, "DROP TABLE other; CREATE TABLE other (ds text, n bigint)")
        catalog.drop_table(bench.path)
        run(bench, "INSERT INTO other VALUES ('10', 10)")


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_what_was_given_up_does_not_land_after_its_table_is_gone(bench: JdbcBench, catalog: JdbcCatalog, change: str) -> None:
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    staged.fence()
    with closing(catalog):
        if change == "drop":
            catalog.drop_table(bench.path)
        else:
            catalog.rename_table(bench.path, f"{table_of(bench).schema}.other")
        with pytest.raises(CommitRejectedError, match="was given up meanwhile"):
            bench.commit(staged, result)
        assert not catalog.table_exists(bench.path)
        catalog.create_table(bench.path, JDBC)
        assert bench.refresh({"1": [3]}).number == 1
        assert bench.rows() == {"1": [3]}


@pytest.mark.parametrize("is_made_again", [False, True], ids=["dropped", "dropped and made again"])
@pytest.mark.parametrize("days", [("2",), ()], ids=["a day", "the complete table"])
def test_a_refresh_of_a_table_that_others_dropped_meanwhile_does_not_land(
    bench: JdbcBench, days: tuple[str, ...], is_made_again: bool
) -> None:
    """It made a table of one day, or landed in the table that was made after it."""
    first = bench.refresh({"1": [1]})
    zombie = bench.stage("zombie", *days)
    request = replace(bench.request(bench.write(zombie, {"2": [2]})), base=Base(first.token, first.data_timestamp))
    run(bench, "DROP TABLE revenue")
    if is_made_again:
        bench.refresh({"1": [10]})
    with pytest.raises(CommitRejectedError, match="was dropped after this refresh was planned"):
        zombie.commit(request, lambda: None)
    assert (bench.rows() == {"1": [10]}) if is_made_again else (bench.table.current() is None)
