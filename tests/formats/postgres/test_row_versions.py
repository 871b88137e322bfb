"""Changes of a source in PostgreSQL, by a column that each write of a row changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.postgres.table import bind

pytestmark = pytest.mark.postgres
DAYS = ("day=2024-03-01", "day=2024-03-02")


class Orders:
    """A table with two days of two rows each."""

    def __init__(self, url: str) -> None:
        self.name = f"orders_{uuid4().hex[:8]}"
        self.url = url
        self.database = url.rpartition("/")[2]
        self.connection = psycopg.connect(url, autocommit=True)
        self.run("CREATE TABLE {} (id bigint, day date, note text, updated_at timestamptz)")
        self.run(
            "INSERT INTO {} SELECT i, DATE '2024-03-01' + i % 2, 'a', TIMESTAMPTZ '2024-03-05Z' + i * '1 s'::interval "
            "FROM generate_series(1, 4) i"
        )

    def run(self, statement: str) -> None:
        self.connection.execute(statement.format(self.name))

    def state(self, column: str = "updated_at", *keys: str, setting: str = "") -> SourceState:
        identifier = TableIdentifier("pg", self.database, self.name)
        source = Source(identifier, "jdbc", partition_keys=keys, version_column=column)
        server = PostgresServer(f"{self.url}{setting}", "catalog pg")
        with closing(server):
            state = bind(source, PostgresStore("pg", server), "v", {}).state
        assert state is not None
        return state


@pytest.fixture
def orders(tables_url: str) -> Iterator[Orders]:
    made = Orders(tables_url)
    yield made
    made.run("DROP TABLE IF EXISTS {} CASCADE")
    made.connection.close()


def by_day(orders: Orders) -> SourceState:
    return orders.state("updated_at", "day")


def test_the_same_rows_are_the_same_state(orders: Orders) -> None:
    before = by_day(orders)
    assert set(before.partitions or ()) == set(DAYS)
    orders.run("INSERT INTO {} SELECT 9, '2024-03-01', 'a', '2024-03-06Z'")
    orders.run("DELETE FROM {} WHERE id = 9")
    orders.run("ANALYZE {}")
    assert by_day(orders) == before
    settings = "?options=-ctimezone%3DAsia/Kolkata%20-cdatestyle%3DGerman"
    assert orders.state("updated_at", "day", setting=settings) == before


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {} VALUES (5, '2024-03-01', 'b', '2024-03-06Z')",
        "INSERT INTO {} VALUES (5, '2024-03-01', 'late', '2020-01-01Z')",
        "UPDATE {} SET note = 'b', updated_at = '2024-03-06Z' WHERE id = 2",
        "DELETE FROM {} WHERE id = 2",
        "WITH gone AS (DELETE FROM {} WHERE id = 2) INSERT INTO {} VALUES (6, '2024-03-01', 'b', '2024-03-05 00:00:03.5Z')",
        "DELETE FROM {} WHERE day = '2024-03-01'",
    ],
)
def test_a_change_is_found_in_its_partition(orders: Orders, change: str) -> None:
    before = by_day(orders)
    orders.connection.execute(change.replace("{}", orders.name))
    after = by_day(orders)
    changed = {day for day in DAYS if (before.partitions or {}).get(day) != (after.partitions or {}).get(day)}
    assert changed == {DAYS[0]}
    assert (after.identity, after.schema) == (before.identity, before.schema)


def test_a_transaction_that_commits_late_is_found(orders: Orders) -> None:
    with psycopg.connect(orders.url) as late:
        late.execute(f"UPDATE {orders.name} SET note = 'b', updated_at = '2024-03-06Z' WHERE id = 1")
        orders.run("UPDATE {} SET note = 'c', updated_at = '2024-03-07Z' WHERE id = 2")
        before = by_day(orders)
    after = by_day(orders)
    assert max(before.partitions or ()) == max(after.partitions or ())
    assert before.partitions != after.partitions


def test_the_system_column_shows_any_write(orders: Orders) -> None:
    before = orders.state("xmin", "day")
    orders.run("UPDATE {} SET note = note WHERE id = 1")
    after = orders.state("xmin", "day")
    assert [(before.partitions or {})[day] == (after.partitions or {})[day] for day in DAYS] == [True, False]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} ALTER COLUMN id TYPE bigint USING id * 2, ALTER COLUMN note TYPE text USING note || 'x'",
        "ALTER TABLE {} ADD COLUMN price int DEFAULT 3",
        "ALTER TABLE {} DROP COLUMN note, ADD COLUMN note text",
        "ALTER TABLE {} RENAME COLUMN note TO remark",
        "CREATE TABLE copied AS SELECT * FROM {}; DROP TABLE {}; ALTER TABLE copied RENAME TO {}",
    ],
)
def test_a_change_that_leaves_the_versions_is_found(orders: Orders, change: str) -> None:
    before = by_day(orders)
    orders.connection.execute(change.replace("{}", orders.name))
    after = by_day(orders)
    assert (after.identity, after.schema) != (before.identity, before.schema)


def test_children_of_a_partitioned_table_count(orders: Orders) -> None:
    parent = f"{orders.name}_all"
    orders.connection.execute(
        f"CREATE TABLE {parent} (LIKE {orders.name}) PARTITION BY RANGE (day);"
        f"ALTER TABLE {parent} ATTACH PARTITION {orders.name} FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')"
    )
    orders.name = parent
    before = by_day(orders)
    assert set(before.partitions or ()) == set(DAYS)
    orders.connection.execute(f"TRUNCATE {parent}")
    after = by_day(orders)
    assert (after.partitions, after.identity == before.identity) == ({}, False)


def test_values_that_spark_writes_differently_are_one_partition(orders: Orders) -> None:
    orders.run("INSERT INTO {} VALUES (5, NULL, 'b', '2024-03-06Z')")
    assert set(by_day(orders).partitions or ()) == {*DAYS, "day=__HIVE_DEFAULT_PARTITION__"}
    orders.run("INSERT INTO {} VALUES (6, 'infinity', 'b', '2024-03-06Z')")
    before = by_day(orders)
    assert set(before.partitions or ()) == {""}
    orders.run("DELETE FROM {} WHERE id = 1")
    assert by_day(orders).partitions != before.partitions


def test_rows_without_a_version_are_not_comparable(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    orders.run("INSERT INTO {} VALUES (5, '2024-03-01', 'b', NULL)")
    assert by_day(orders).partitions is None
    assert "counts as changed, because rows have no value in column updated_at" in caplog.text


@pytest.mark.parametrize(
    ("column", "keys", "problem"),
    [
        ("changed", (), "has no column 'changed'; it has id, day, note, updated_at, xmin"),
        ("day", (), "'version_column' 'day' is of type date, which may be equal after a write"),
        ("updated_at", ("note",), "a partition key is a date or an integer, and 'note' is of type text"),
        ("updated_at", ("id", "hour"), "has no column 'hour'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(orders: Orders, column: str, keys: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"orders_.*{problem}"):
        orders.state(column, *keys)


def test_times_in_seconds_and_views_are_refused(orders: Orders) -> None:
    orders.run("ALTER TABLE {} ALTER COLUMN updated_at TYPE timestamptz(0)")
    with pytest.raises(ConfigurationError, match="may be equal after a write; name a column with a counter or a time in micro"):
        by_day(orders)
    orders.run("CREATE VIEW {0}_view AS SELECT * FROM {0}")
    orders.name += "_view"
    with pytest.raises(ConfigurationError, match="is no table, so 'version_column' cannot show its changes"):
        by_day(orders)
    orders.name = orders.name.removesuffix("_view")
