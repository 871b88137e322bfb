"""Whatever the settings of the user, the encoding of the database and the types that others gave to columns: the same rows."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.clients.postgres.server import PostgresServer as Server
from airflow_dynamic_tables.clients.postgres.tables import lock_commits
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CommitRejectedError, DynamicTableError, StageRejectedError
from airflow_dynamic_tables.formats.base import RowCounts
from tests.contracts.catalogs.samples import DYNAMIC
from tests.support.benches.jdbc import JdbcBench, jdbc_bench, table_of
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.postgres


def run(bench: JdbcBench, *statements: str) -> None:
    """Statements of somebody else, in the schema of the table."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {table_of(bench).schema}, public".encode())
        for statement in statements:
            connection.execute(statement.encode())


def as_user_with(bench: JdbcBench, *settings: str) -> Server:
    """Let the bench work as a user who has some settings by default."""
    user = f"u_{uuid4().hex[:8]}"
    run(bench, f"CREATE ROLE {user} LOGIN SUPERUSER", *(f"ALTER ROLE {user} SET {setting}" for setting in settings))
    return work_on(bench, bench.url.replace("postgres@", f"{user}@"))


def work_on(bench: JdbcBench, url: str) -> Server:
    assert isinstance(bench.store, PostgresStore)
    server = Server(url, "catalog lake")
    bench.store = PostgresStore("lake", server, {}, bench.store.warehouse, bench.store.lock_timeout)
    return server


ODD = "it's\\"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = serializable",
        "DateStyle = 'German'",
        "standard_conforming_strings = off",
        "search_path = ''",
    ],
)
def test_settings_of_the_user_change_nothing(bench: JdbcBench, setting: str) -> None:
    bench.refresh({ODD: [1]})
    run(
        bench,
        "CREATE INDEX lower_ds ON revenue (lower(ds)) WHERE ds <> 'it''s'",
        "COMMENT ON COLUMN revenue.n IS 'a \\ b'",
        'CREATE TABLE "revenue__stage_0b0b0b0b-0000-4000-8000-000000000001" (n int)',
    )
    as_user_with(bench, setting)
    bench.refresh({ODD: [2], "2": [3]}, ODD, "2")
    bench.refresh({ODD: [2], "2": [4]})
    assert bench.rows() == {"2": [4], ODD: [2]}
    swept = [bench.table.delete_orphans(datetime.now(UTC) + timedelta(days=1), tuple).files for _ in range(2)]
    assert swept == [0, 1]
    run(bench, "ALTER TABLE revenue ALTER n TYPE timestamptz USING '2024-02-29 12:00:00Z'")
    assert {row["n"] for row in bench.table.sample(9)} == {datetime(2024, 2, 29, 12, tzinfo=UTC)}


def test_who_waited_for_another_commit_sees_it_whatever_isolation_is_the_users_default(bench: JdbcBench) -> None:
    """It takes the number after that of the other one; by a snapshot from before it waited, there would be a conflict."""
    bench.refresh({"1": [1]})
    server = as_user_with(bench, "default_transaction_isolation = 'repeatable read'")
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    landed: list[int] = []
    with server.transaction(bench.path.database, 30) as other:
        lock_commits(other, table_of(bench))
        waiting = threading.Thread(target=lambda: landed.append(bench.commit(staged, result).number))
        waiting.start()
        while not other.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            pass
        other.run(
            f"INSERT INTO {table_of(bench).commits} (table_name, token, number, value) SELECT table_name, 'other', 2, value || "
            f"jsonb_build_object('version', value -> 'version' || '{{\"number\": 2}}') FROM {table_of(bench).commits}"
        )
    waiting.join()
    assert landed == [3]


def test_what_is_committed_outlives_a_crash_whatever_the_user_has_by_default(bench: JdbcBench) -> None:
    server = as_user_with(bench, "synchronous_commit = off")
    with server.transaction(bench.path.database, 1) as opened:
        assert opened.rows("SHOW synchronous_commit")[0].synchronous_commit == "on"


def test_no_statement_stays_prepared_on_a_connection_that_a_pooler_gives_to_others(bench: JdbcBench) -> None:
    server = as_user_with(bench)
    with server.connected(bench.path.database) as opened:
        for _ in range(10):
            (prepared,) = opened.rows("SELECT count(*) AS n FROM pg_prepared_statements WHERE name <> %(no)s", {"no": ""})
    assert prepared.n == 0


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def encoded(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> JdbcBench:
    """A bench in a database of another encoding."""
    name = f"encoded_{request.param.lower()}"
    url = postgres.create_database(name, "template0", request.param)
    bench = jdbc_bench(f"{url}?client_encoding=utf8", tmp_path)
    work_on(bench, url)
    return bench


def test_texts_are_the_same_in_databases_of_other_encodings(encoded: JdbcBench) -> None:
    encoded.refresh({"ä": [1], "b": [2]})
    encoded.refresh({"ä": [3]}, "ä")
    assert encoded.rows() == {"b": [2], "ä": [3]}
    try:
        encoded.refresh({"1": [4]}, "漢", "1")
    except CommitRejectedError as error:
        assert 'has no equivalent in encoding "LATIN1"' in str(error)  # noqa: PT017 - the other one takes it
        assert encoded.rows() == {"b": [2], "ä": [3]}
    else:
        assert encoded.rows() == {"1": [4], "b": [2], "ä": [3]}


LENIENT = {
    "collation": (
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "ALTER TABLE revenue ALTER ds TYPE text COLLATE any_case",
    ),
    "citext": ("CREATE EXTENSION IF NOT EXISTS citext WITH SCHEMA public", "ALTER TABLE revenue ALTER ds TYPE citext"),
    "domain": (
        "CREATE EXTENSION IF NOT EXISTS citext WITH SCHEMA public",
        "CREATE DOMAIN name AS citext",
        "ALTER TABLE revenue ALTER ds TYPE name",
    ),
    "trailing blanks": ("ALTER TABLE revenue ALTER ds TYPE char(3)",),
}


@pytest.mark.parametrize("statements", LENIENT.values(), ids=LENIENT)
def test_partitions_are_told_apart_where_the_server_takes_their_texts_for_equal(
    bench: JdbcBench, statements: tuple[str, ...]
) -> None:
    bench.refresh({"a": [1], "A": [2], "b": [3]})
    run(bench, *statements)
    bench.refresh({"a": [10]}, "a")
    bench.refresh({}, "b ")
    assert {day.strip(): values for day, values in bench.rows().items()} == {"A": [2], "a": [10], "b": [3]}
    assert bench.table.count(PartitionSet.of([{"ds": "a"}])) == RowCounts(replaced=1, held=1, total=3, partitions=3)


@pytest.mark.parametrize("days", [(), ("1",)], ids=["all rows", "a partition"])
@pytest.mark.parametrize("filled", ["GENERATED ALWAYS AS (n * 2) STORED", "GENERATED ALWAYS AS IDENTITY"])
def test_a_column_that_the_server_fills_stays(bench: JdbcBench, filled: str, days: tuple[str, ...]) -> None:
    bench.refresh({"1": [1]})
    run(bench, f"ALTER TABLE revenue ADD COLUMN more bigint {filled}")
    bench.refresh({"1": [10]}, *days)
    assert [(row["n"], row["more"]) for row in bench.table.sample(9)] == [(10, 20 if "n * 2" in filled else 2)]


def test_rows_of_a_table_that_inherits_are_not_deleted(bench: JdbcBench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    run(bench, "CREATE TABLE heir () INHERITS (revenue)", "INSERT INTO heir VALUES ('7', 7)")
    with pytest.raises(StageRejectedError, match="or a table that inherits from it, changes what is written"):
        bench.refresh({"1": [10]})
    bench.refresh({"1": [10]}, "1")
    assert bench.rows() == {"1": [10], "2": [2], "7": [7]}


def test_a_table_that_is_replicated_with_all_others_keeps_its_place(postgres: PostgresServer, tmp_path: Path) -> None:
    """Whoever subscribes to it would get no row of one that takes its place under its name."""
    bench = jdbc_bench(postgres.create_database(f"replicated_{uuid4().hex[:8]}"), tmp_path)
    bench.refresh({"1": [1]})
    run(
        bench,
        "ALTER TABLE revenue ADD PRIMARY KEY (n)",
        "CREATE PUBLICATION everything FOR ALL TABLES",
        "CREATE TABLE seen AS SELECT 'revenue'::regclass::oid AS oid",
    )
    bench.refresh({"1": [2]})
    schema = table_of(bench).schema
    with psycopg.connect(bench.url) as connection:
        query = f"SELECT oid = '{schema}.revenue'::regclass::oid FROM {schema}.seen"
        assert connection.execute(query.encode()).fetchone() == (True,)


def test_a_user_who_may_only_read_is_told(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    as_user_with(bench, "default_transaction_read_only = on")
    with pytest.raises(DynamicTableError, match=r"cannot execute .* in a read-only transaction"):
        bench.refresh({"1": [2]})
    assert bench.rows() == {"1": [1]}


def test_dates_that_python_has_none_for_are_shown_as_the_server_spells_them(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    whole = "timestamp '2024-02-29 12:00:00.5'"
    run(
        bench,
        f"ALTER TABLE revenue ADD at timestamp DEFAULT {whole}, ADD zoned timestamptz DEFAULT '2024-02-29 12:00Z', ADD noon time",
        "ALTER TABLE revenue ALTER n TYPE date USING '2024-02-29'",
        "INSERT INTO revenue VALUES ('2', 'infinity', '-infinity', '10000-01-01', '24:00')",
        "INSERT INTO revenue VALUES ('3', '0044-03-15 BC', NULL, NULL, NULL)",
    )
    read = {row["ds"]: (row["n"], row["at"], row["zoned"], row["noon"]) for row in bench.table.sample(9)}
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert read["1"] == (noon.date(), noon.replace(microsecond=500_000, tzinfo=None), noon, None)
    assert type(read["1"][0]) is not datetime
    assert (read["2"][:2], read["2"][2][:11], read["2"][3]) == (("infinity", "-infinity"), "10000-01-01", "24:00:00")
    assert read["3"] == ("0044-03-15 BC", None, None, None)


def test_dates_are_spelled_as_spark_spells_them_whatever_the_user_has_by_default(bench: JdbcBench) -> None:
    """Where a column of texts takes them, or a key is one."""
    bench.columns = (Column("ds", "date"), Column("n", "bigint"))
    table = replace(DYNAMIC, format="jdbc", columns=(), partition_keys=("ds",))
    with closing(JdbcCatalog("pg", bench.url)) as catalog:
        catalog.create_table(bench.path, table)
    bench.refresh({"2024-02-01": [1]})
    user = as_user_with(bench, "DateStyle = 'German'").user
    with closing(JdbcCatalog("pg", bench.url.replace("postgres@", f"{user}@"))) as catalog:
        partitions = catalog.get_partitions(bench.path)
    assert [dict(partition.spec) for partition in partitions] == [{"ds": "2024-02-01"}]
    run(bench, "ALTER TABLE revenue ALTER ds TYPE text")
    bench.refresh({"2024-02-01": [2], "2024-03-04": [3]}, "2024-02-01", "2024-03-04")
    assert bench.rows() == {"2024-02-01": [2], "2024-03-04": [3]}
