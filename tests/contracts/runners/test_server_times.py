"""Dates and times of a PostgreSQL server are read as they are there, whatever the time zone of Java and of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.formats.registry import bind
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.registry import runner_for
from tests.contracts.runners.conftest import JobRunner
from tests.contracts.runners.test_running import result_of, rows
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.usefixtures("postgres_driver")]

Plan = Callable[..., RefreshPlan]

TIMES = (
    "2024-07-01 01:30:00",
    "2024-03-10 02:30:00",  # New York skips it
    "2024-11-03 01:30:00.000001",  # and has it twice
    "2024-11-03 05:30:00",  # the first of the two, in UTC
    "2024-11-03 06:30:00",
    "1969-12-31 23:59:59.999999",
    "1582-10-10 12:00:00",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
)
DAYS = ("2024-07-01", "1969-12-31", "1582-10-04", "1582-10-15", "0001-01-01", "9999-12-31")
RUNNERS = ("job in America/New_York", "job in Asia/Tokyo", "server in America/New_York")


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    kind, _, zone = request.param.partition(" in ")
    if kind == "server":  # see tests.support.connect_server
        yield runner_for(SparkSettings(), request.getfixturevalue("connect_server").url, print)
        return
    spark: SparkSession = request.getfixturevalue("spark")
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    yield JobRunner(spark)
    zones.setDefault(before)


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> Iterator[JdbcCatalog]:
    url = postgres.create_database(f"times_{uuid4().hex[:8]}")
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone TO 'UTC'")
        connection.execute("CREATE DOMAIN moment AS timestamp")
        connection.execute('CREATE TABLE visits (id int, "At %:" moment, zoned timestamptz(6), told text)')
        connection.execute(
            "INSERT INTO visits SELECT n, at::timestamp, at::timestamptz, at FROM unnest(%s::text[]) WITH ORDINALITY AS u(at, n)",
            (list(TIMES),),
        )
        connection.execute("CREATE TABLE days AS SELECT unnest(%s::text[])::date AS day", (list(DAYS),))
        connection.execute("INSERT INTO days VALUES (NULL)")
        connection.execute("CREATE TABLE gap AS SELECT DATE '1582-10-10' AS day")
        connection.execute(
            "CREATE TABLE others AS SELECT 'infinity'::timestamp AS late, '-infinity'::timestamptz AS early, "
            "NULL::timestamp AS none, TIME '02:30' AS at, '02:30+02'::timetz AS zoned, "
            "ARRAY['2024-03-10 02:30'::timestamp, NULL] AS list, "
            "ARRAY['1582-10-10'::date] AS days"
        )
    with closing(JdbcCatalog("pg", url)) as catalog:
        catalog.open()
        yield catalog


def bound(shop: JdbcCatalog, table: str, **options: str) -> SourceBinding:
    return bind(Source(TableIdentifier("pg", shop.default_database, table), "jdbc", options=options), shop.stores(), table)


@pytest.mark.sampled
def test_times_are_those_of_the_server(runner: Runner, plan: Plan, shop: JdbcCatalog) -> None:
    query = (
        "SELECT id, typeof(`At %:`) || ' ' || typeof(zoned) AS kinds, `At %:` = CAST(told AS TIMESTAMP_NTZ) AS same, "
        "zoned = CAST(told || ' UTC' AS TIMESTAMP) AS same_zoned, "
        "CAST(CAST(`At %:` AS DATE) AS STRING) = left(told, 10) AS same_day, "
        "zoned >= TIMESTAMP'2024-11-03 06:30:00 UTC' AS late FROM visits WHERE `At %:` > TIMESTAMP_NTZ'0001-01-01' OR id < 100"
    )
    planned = plan(query, bound(shop, "visits", partitionColumn="At %:", numPartitions="2"), timezone="Europe/Berlin")
    runner.run(planned, {})
    found = rows(result_of(planned))
    same = {"kinds": "timestamp_ntz timestamp", "same": True, "same_zoned": True, "same_day": True}
    late = (5, 9)
    assert found == [{"id": number, **same, "late": number in late} for number in range(1, len(TIMES) + 1)]


def test_a_condition_on_a_time_means_that_time(runner: Runner, plan: Plan, shop: JdbcCatalog) -> None:
    query = (
        "SELECT id FROM visits WHERE zoned = TIMESTAMP'2024-11-03 06:30:00 UTC' OR `At %:` = TIMESTAMP_NTZ'2024-03-10 02:30:00'"
    )
    planned = plan(query, bound(shop, "visits"), timezone="America/New_York")
    runner.run(planned, {})
    assert [row["id"] for row in rows(result_of(planned))] == [2, 5]


@pytest.mark.sampled
def test_dates_and_rare_types_are_those_of_the_server(runner: Runner, plan: Plan, shop: JdbcCatalog) -> None:
    query = (
        "SELECT concat_ws(',', sort_array(collect_list(CAST(day AS STRING)))) AS days, count_if(day = DATE'2024-07-01') AS one, "
        "any_value(CAST(late AS STRING)) AS late, any_value(CAST(early AS STRING)) AS early, any_value(none) AS none, "
        "any_value(CAST(at AS STRING)) AS at, any_value(CAST(others.zoned AS STRING)) AS zoned, "
        "any_value(CAST(list AS STRING)) AS list, any_value(CAST(others.days AS STRING)) AS old FROM days CROSS JOIN others"
    )
    planned = plan(query, bound(shop, "days"), bound(shop, "others"))
    runner.run(planned, {})
    assert rows(result_of(planned)) == [
        {
            "days": ",".join(sorted(DAYS)),
            "one": 1,
            "late": "9999-12-31 23:59:59.999",
            "early": "0001-01-01 00:00:00",
            "none": None,
            "at": "1970-01-01 02:30:00",
            "zoned": "1970-01-01 00:30:00",
            "list": "[2024-03-10 02:30:00, null]",
            "old": "[1582-10-10]",
        }
    ]


def test_a_date_that_java_does_not_have_is_refused(runner: Runner, plan: Plan, shop: JdbcCatalog) -> None:
    with pytest.raises(
        JobFailedError, match="column day has the date 1582-10-10, which PostgreSQL's JDBC driver reads as another"
    ):
        runner.run(plan("SELECT * FROM gap", bound(shop, "gap")), {})
