"""What Flink's materialized tables do in full mode: the facts of docs/compared.md that are measured here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flink_gateway import FlinkError, FlinkGateway, running_flink_gateway
from tests.support.processes import wait_until

pytestmark = [pytest.mark.large, pytest.mark.spark, pytest.mark.timeout(600)]

DAILY = "PARTITIONED BY (ds) WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd') "
FULL = "FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL"


@pytest.fixture(scope="module")
def gateway(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkGateway]:  # noqa: ARG001 - it must be there
    with running_flink_gateway(tmp_path_factory.mktemp("flink")) as started:
        yield started


@pytest.fixture
def sales(gateway: FlinkGateway) -> Iterator[FlinkGateway]:
    """A database with numbers of two days."""
    gateway.sql("CREATE DATABASE sales")
    gateway.sql("CREATE TABLE sales.numbers (ds STRING, n INT) PARTITIONED BY (ds)")
    gateway.sql("INSERT INTO sales.numbers VALUES ('2024-03-01', 1), ('2024-03-02', 2)")
    yield gateway
    for (name,) in gateway.sql("SHOW TABLES IN sales"):
        if name != "numbers":
            gateway.sql(f"DROP MATERIALIZED TABLE sales.{name}")
    gateway.sql("DROP DATABASE sales CASCADE")


def rows(gateway: FlinkGateway, table: str) -> list[tuple[str, int]]:
    return sorted((row[0][-2:], row[1]) for row in gateway.sql(f"SELECT * FROM {table}"))


def test_a_query_that_fails_leaves_the_last_version(sales: FlinkGateway) -> None:
    sales.sql(f"CREATE MATERIALIZED TABLE sales.tens {DAILY} {FULL} AS SELECT ds, 10 / n AS x FROM sales.numbers")
    assert rows(sales, "sales.tens") == [], "the first refresh is that of the schedule"
    assert sales.refresh("sales.tens") == "FINISHED"
    assert rows(sales, "sales.tens") == [("01", 10), ("02", 5)]
    sales.sql("INSERT INTO sales.numbers VALUES ('2024-03-01', 5), ('2024-03-03', 0)")
    assert sales.refresh("sales.tens") == "FAILED"
    assert rows(sales, "sales.tens") == [("01", 10), ("02", 5)]


def test_readers_see_one_version_while_another_is_made(sales: FlinkGateway) -> None:
    sales.sql(
        "CREATE TABLE default_catalog.default_database.slow (i INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10', "
        "'number-of-rows' = '30')"
    )
    query = "SELECT ds, n FROM sales.numbers, default_catalog.default_database.slow"
    sales.sql(f"CREATE MATERIALIZED TABLE sales.many {DAILY} {FULL} AS {query}")
    assert sales.refresh("sales.many") == "FINISHED"
    sales.sql("INSERT OVERWRITE sales.numbers VALUES ('2024-03-01', 11), ('2024-03-02', 12)")
    seen = {tuple(rows(sales, "sales.many"))}
    job = sales.begin_refresh("sales.many")
    polls = 0
    while len(seen) == 1:
        polls += 1
        seen.add(tuple(rows(sales, "sales.many")))
    assert sales.state_of(job) == "FINISHED"
    assert polls > 1
    expected = ([("01", 1)] * 30 + [("02", 2)] * 30, [("01", 11)] * 30 + [("02", 12)] * 30)
    assert seen == set(map(tuple, expected))


def test_a_partition_that_the_query_returns_no_more_stays(sales: FlinkGateway) -> None:
    """A refresh of everything overwrites the partitions that it has rows for, and those only."""
    copy = "AS SELECT ds, n FROM sales.numbers"
    sales.sql(f"CREATE MATERIALIZED TABLE sales.days {DAILY} {FULL} {copy}")
    sales.sql(f"CREATE MATERIALIZED TABLE sales.flat {FULL} {copy}")
    for table in ("sales.days", "sales.flat"):
        sales.refresh(table)
    sales.sql("ALTER TABLE sales.numbers DROP PARTITION (ds = '2024-03-02')")
    for table in ("sales.days", "sales.flat"):
        sales.refresh(table)
    assert rows(sales, "sales.flat") == [("01", 1)]
    assert rows(sales, "sales.days") == [("01", 1), ("02", 2)]
    sales.refresh("sales.days", "PARTITION (ds = '2024-03-02')")
    assert rows(sales, "sales.days") == [("01", 1), ("02", 2)]


def test_unchanged_sources_are_computed_again(sales: FlinkGateway) -> None:
    sales.sql(f"CREATE MATERIALIZED TABLE sales.days {DAILY} {FULL} AS SELECT ds, n FROM sales.numbers")
    for number in (1, 2):
        sales.refresh("sales.days")
        assert sales.snapshots("sales.days") == number


def test_late_rows_are_in_no_refresh_of_the_schedule(sales: FlinkGateway) -> None:
    """The refresh of a tick replaces the partition of its time, whatever else changed."""
    sales.sql(f"CREATE MATERIALIZED TABLE sales.days {DAILY} {FULL} AS SELECT ds, n FROM sales.numbers")
    assert sales.refresh_on_schedule("sales.days", "2024-03-02 00:00:00") == "FINISHED"
    assert rows(sales, "sales.days") == [("01", 1)]
    sales.sql("INSERT INTO sales.numbers VALUES ('2024-03-01', 7)")
    assert sales.refresh_on_schedule("sales.days", "2024-03-03 00:00:00") == "FINISHED"
    assert rows(sales, "sales.days") == [("01", 1), ("02", 2)]


REFUSED = {
    "a column less": ("ALTER MATERIALIZED TABLE sales.days AS SELECT ds FROM sales.numbers", "drop column is unsupported"),
    "another type": ("ALTER MATERIALIZED TABLE sales.days AS SELECT ds, CAST(n AS BIGINT) AS n FROM sales.numbers", "appending"),
    "45 minutes": (
        "CREATE MATERIALIZED TABLE sales.often FRESHNESS = INTERVAL '45' MINUTE REFRESH_MODE = FULL AS SELECT 1 AS x",
        "only freshness that are factors of 60",
    ),
    "another freshness": ("ALTER MATERIALIZED TABLE sales.days SET FRESHNESS = INTERVAL '2' HOUR", "Unsupported query: ALTER"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_change_that_is_refused(sales: FlinkGateway, case: str) -> None:
    statement, why = REFUSED[case]
    sales.sql(f"CREATE MATERIALIZED TABLE sales.days {DAILY} {FULL} AS SELECT ds, n FROM sales.numbers")
    with pytest.raises(FlinkError, match=why):
        sales.sql(statement)


def test_a_database_is_dropped_without_the_schedules_of_its_tables(gateway: FlinkGateway) -> None:
    create = f"CREATE MATERIALIZED TABLE dropped.days {FULL} AS SELECT 1 AS n"
    gateway.sql("CREATE DATABASE dropped")
    gateway.sql(create)
    gateway.sql("DROP DATABASE dropped CASCADE")
    gateway.sql("CREATE DATABASE dropped")
    with pytest.raises(FlinkError, match=r"`dropped`\.`days` quartz schedule job already exist"):
        gateway.sql(create)


def test_a_gateway_that_is_killed_keeps_the_rows_and_loses_the_schedule(java: None, tmp_path: Path) -> None:  # noqa: ARG001
    with running_flink_gateway(tmp_path) as first:
        first.sql("CREATE DATABASE sales")
        first.sql("CREATE TABLE sales.numbers (ds STRING, n INT)")
        first.sql("INSERT INTO sales.numbers VALUES ('2024-03-01', 1)")
        frequent = "FRESHNESS = INTERVAL '1' SECOND REFRESH_MODE = FULL"
        first.sql(f"CREATE MATERIALIZED TABLE sales.copied {frequent} AS SELECT ds, n FROM sales.numbers")
        wait_until(lambda: rows(first, "sales.copied"), "a refresh of the schedule")
        first.java.process.kill()
        first.java.process.wait()
    with running_flink_gateway(tmp_path) as second:
        assert rows(second, "sales.copied") == [("01", 1)]
        with pytest.raises(FlinkError, match="Failed to suspend a non-existent quartz schedule job"):
            second.sql("ALTER MATERIALIZED TABLE sales.copied SUSPEND")
        with pytest.raises(FlinkError, match="refresh workflow has been resumed"):
            second.sql("ALTER MATERIALIZED TABLE sales.copied RESUME")
