"""The job on a real Spark and a real PostgreSQL: what becomes of the rows of a query there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column, TableLayout
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.jobs.messages import message
from tests.support.jobs import refresh
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.usefixtures("postgres_driver")]

Plan = Callable[..., RefreshPlan]


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.create_database(f"copied_{uuid4().hex[:8]}")


@pytest.fixture
def server(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        schema = f"s{uuid4().hex[:8]}"
        connection.execute(f'CREATE SCHEMA "{schema}"; SET search_path TO "{schema}"')
        yield connection
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.fixture
def sink(database: str, server: psycopg.Connection[Any]) -> Sink:
    (schema,) = server.execute("SELECT current_schema()").fetchone() or ("",)
    url = f"jdbc:{database.replace('postgres@', '')}"
    return Sink(url, "org.postgresql.Driver", f'"{schema}"."my ""Totals""__stage_t1"', user="postgres")


TABLE = '"my ""Totals""__stage_t1"'


def types_of(server: psycopg.Connection[Any]) -> dict[str, str]:
    found = server.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
        "AND NOT attnotnull ORDER BY attnum",
        (TABLE,),
    )
    return dict(found.fetchall())


def test_the_rows_are_in_the_table_and_the_result_says_so(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]
) -> None:
    query = "SELECT ds, n FROM VALUES ('1', 10), ('1', 11), ('2', 20), ('3', 30) AS v(ds, n)"
    planned = plan(query, partition_keys=("ds",), partitions=PartitionSet.of([{"ds": "1"}, {"ds": "2"}]), sink=sink)
    result = refresh(spark, planned)
    assert (result.token, result.rows, result.partitions, result.files) == ("t1", 3, ({"ds": "1"}, {"ds": "2"}), ())
    assert [(column.name, column.type) for column in result.columns] == [("ds", "string"), ("n", "int")]
    (size,) = server.execute("SELECT pg_total_relation_size(%s::regclass)", (TABLE,)).fetchone() or (0,)
    assert result.bytes == size > 0
    assert result.seconds.keys() == {"write", "inspect", "copy"}
    assert server.execute(f"SELECT ds, n FROM {TABLE} ORDER BY n").fetchall() == [("1", 10), ("1", 11), ("2", 20)]
    assert server.execute("SELECT relpersistence FROM pg_class WHERE oid = %s::regclass", (TABLE,)).fetchone() == ("p",)
    assert RefreshResult.from_json(Path(planned.result_location.removeprefix("file://")).read_text()) == result


def test_a_table_of_an_earlier_try_is_replaced(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]
) -> None:
    server.execute(f"CREATE TABLE {TABLE} (other text); INSERT INTO {TABLE} VALUES ('half')")
    assert refresh(spark, plan("SELECT 1 AS x", sink=sink)).rows == 1
    assert server.execute(f"SELECT * FROM {TABLE}").fetchall() == [(1,)]
    assert refresh(spark, plan("SELECT 1 AS x WHERE false", sink=sink)).rows == 0
    assert server.execute(f"SELECT * FROM {TABLE}").fetchall() == []


EVERY_TYPE = r"""
SELECT true AS b, tinyint(1) AS t, 3 AS i, 4L AS l, float(1.5) AS f, double('NaN') AS d, 1.23BD AS dec,
  CAST('12345678901234567890.123456789012345678' AS decimal(38, 18)) AS big, 'a\'"\\,{}%ü\n' AS s, '' AS e, x'00ff' AS bin,
  DATE'0001-01-01' AS long_ago, DATE'1582-10-10' AS never, DATE'9999-12-31' AS far,
  TIMESTAMP'2024-03-31 00:59:59.123456Z' AS ts, TIMESTAMP'1500-01-01 00:00:00Z' AS old_ts,
  TIMESTAMP_NTZ'2024-03-31 02:30:00.000001' AS ntz, TIMESTAMP_NTZ'1582-10-10 01:00:00' AS old_ntz,
  array(1, NULL) AS ai, array('a,"b{}\\', NULL, '') AS ast, array(1.20BD) AS adec,
  array(true) AS ab, array(1.5D) AS adb, array(5L) AS al, CAST(array() AS array<string>) AS none, CAST(NULL AS string) AS n,
  CAST(NULL AS timestamp_ntz) AS no_time
"""
TYPES = {
    "b": ("boolean", "true"),
    "t": ("integer", "1"),
    "i": ("integer", "3"),
    "l": ("bigint", "4"),
    "f": ("real", "1.5"),
    "d": ("double precision", "NaN"),
    "dec": ("numeric(3,2)", "1.23"),
    "big": ("numeric(38,18)", "12345678901234567890.123456789012345678"),
    "s": ("text", "a'\"\\,{}%ü\n"),
    "e": ("text", ""),
    "bin": ("bytea", "\\x00ff"),
    "long_ago": ("date", "0001-01-01"),
    "never": ("date", "1582-10-10"),
    "far": ("date", "9999-12-31"),
    "ts": ("timestamp with time zone", "2024-03-31 00:59:59.123456+00"),
    "old_ts": ("timestamp with time zone", "1500-01-01 00:00:00+00"),
    "ntz": ("timestamp without time zone", "2024-03-31 02:30:00.000001"),
    "old_ntz": ("timestamp without time zone", "1582-10-10 01:00:00"),
    "ai": ("integer[]", "{1,NULL}"),
    "ast": ("text[]", '{"a,\\"b{}\\\\",NULL,""}'),
    "adec": ("numeric(3,2)[]", "{1.20}"),
    "ab": ("boolean[]", "{t}"),
    "adb": ("double precision[]", "{1.5}"),
    "al": ("bigint[]", "{5}"),
    "none": ("text[]", "{}"),
    "n": ("text", None),
    "no_time": ("timestamp without time zone", None),
}


@pytest.mark.sampled
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_every_type_arrives_as_it_was_wherever_java_is(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any], zone: str
) -> None:
    """In Berlin there was no half past two on that day."""
    java: Any = spark.sparkContext._jvm
    before = java.java.util.TimeZone.getDefault()
    java.java.util.TimeZone.setDefault(java.java.util.TimeZone.getTimeZone(zone))
    try:
        refresh(spark, plan(EVERY_TYPE, sink=sink))
    finally:
        java.java.util.TimeZone.setDefault(before)
    server.execute("SET timezone TO 'UTC'")
    texts = ", ".join(f'"{name}"::text' for name in TYPES)
    (row,) = server.execute(f"SELECT {texts} FROM {TABLE}").fetchall()
    assert dict(zip(TYPES, zip(types_of(server).values(), row, strict=True), strict=True)) == TYPES


NAME = "n" * 64


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT map('a', 1) AS m", "map<string,int>"),
        ("SELECT array(array(1)) AS m", "array<array<int>>"),
        ("SELECT array(TIMESTAMP'2024-01-01 00:00:00') AS m", "array<timestamp>"),
        (f"SELECT 1 AS {NAME}", None),
    ],
    ids=["map", "array of arrays", "array of times", "long name"],
)
def test_what_the_server_cannot_hold_is_refused_before_anything_is_computed(
    spark: SparkSession, plan: Plan, sink: Sink, query: str, kind: str | None
) -> None:
    words = f"the name of column '{NAME}' has 64 bytes, of which PostgreSQL keeps 63; give it a shorter one in the query"
    if kind is not None:
        todo = "write it as text with to_json in the query"
        words = f"column 'm' has type {kind}, which Spark cannot write into PostgreSQL; {todo}"
    planned = plan(query, sink=sink)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        refresh(spark, planned)
    assert str(caught.value) == words
    assert not Path(planned.data_location.removeprefix("file://")).exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"driver": "no.such.Driver"},
            (
                "lake.sales.t needs the JDBC driver no.such.Driver; name its jar in the definition, for example "
                "spark: {packages: 'org.postgresql:postgresql:42.7.7'}"
            ),
        ),
        (
            {"password_variable": "NO_SUCH_VARIABLE"},
            (
                "environment variable NO_SUCH_VARIABLE with the password of lake.sales.t is not set; in cluster mode hand it "
                "to the driver, for example as a Kubernetes secret"
            ),
        ),
        ({"table": '"nowhere"."t"'}, 'org.postgresql.util.PSQLException: ERROR: schema "nowhere" does not exist\n  Position: 14'),
        ({"user": "nobody"}, 'org.postgresql.util.PSQLException: FATAL: role "nobody" does not exist'),
    ],
    ids=["driver", "password", "schema", "user"],
)
def test_a_server_that_cannot_be_written_to_is_told_before_anything_is_computed(
    spark: SparkSession, plan: Plan, sink: Sink, changes: dict[str, str], words: str
) -> None:
    fields = {name: getattr(sink, name) for name in ("url", "driver", "table", "user")}
    planned = plan("SELECT 1 AS x", sink=Sink(**{**fields, **changes}))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds; the whole message is compared
        refresh(spark, planned)
    assert message(caught.value) == words
    assert not Path(planned.data_location.removeprefix("file://")).exists()


def test_a_text_that_the_server_cannot_hold_fails_the_job(spark: SparkSession, plan: Plan, sink: Sink) -> None:
    planned = plan(r"SELECT 'a\0b' AS x", sink=sink)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Py4J's
        refresh(spark, planned)
    assert 'invalid byte sequence for encoding "UTF8": 0x00' in message(caught.value)
    assert not Path(planned.result_location.removeprefix("file://")).exists()


def test_rows_that_came_twice_fail_the_job(spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]) -> None:
    """As when Spark runs a task again that has committed: somebody else's row is one too many, too."""
    planned = plan("SELECT 1 AS x", sink=sink)
    stop = threading.Event()

    def duplicate() -> None:
        with psycopg.connect(server.info.dsn, autocommit=True) as other:
            while not stop.is_set():
                if other.execute("SELECT to_regclass(%s)", (sink.table,)).fetchone() != (None,):
                    other.execute(f"INSERT INTO {sink.table} VALUES (2)")  # the table is empty until the files are written
                    return

    thread = threading.Thread(target=duplicate)
    thread.start()
    try:
        with pytest.raises(ValueError, match=r"has 2 rows, but 1 were to be copied: Spark ran a task again .* refresh again"):
            refresh(spark, planned)
    finally:
        stop.set()
        thread.join()
    assert not Path(planned.result_location.removeprefix("file://")).exists()


def test_expectations_are_counted_and_violating_rows_left_out(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]
) -> None:
    expectations = (
        Expectation("positive", Action.DROP, "x > 0"),
        Expectation("small", Action.WARN, "x < 3"),
        Expectation("single", Action.WARN, unique=("y",)),
    )
    planned = plan(
        "SELECT * FROM VALUES (0, 1), (1, 1), (2, 1), (3, 2) AS v(x, y)",
        sink=sink,
        expectations=expectations,
    )
    result = refresh(spark, planned)
    assert [(one.name, one.violations) for one in result.expectations] == [("positive", 1), ("small", 1), ("single", 2)]
    assert server.execute(f"SELECT x FROM {TABLE} ORDER BY x").fetchall() == [(1,), (2,), (3,)]


def test_columns_that_do_not_fit_are_refused_before_the_table_is_made(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]
) -> None:
    planned = plan("SELECT 1 AS y", sink=sink, layout=TableLayout((Column("x", "int"),)))
    with pytest.raises(SchemaEvolutionError, match="Column 1 was x int, but the query returns y int"):
        refresh(spark, planned)
    assert server.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone() == (None,)


def test_batches_and_writers_are_those_of_the_plan(
    spark: SparkSession, plan: Plan, sink: Sink, server: psycopg.Connection[Any]
) -> None:
    """Rows of one transaction have one xmin; this Spark has two cores."""
    fields = {name: getattr(sink, name) for name in ("url", "driver", "table", "user")}
    for writers in (1, 2):
        query = "SELECT /*+ REPARTITION(3) */ id FROM range(0, 3000, 1, 3)"
        assert refresh(spark, plan(query, sink=Sink(**fields, batch_size=7, writers=writers))).rows == 3000
        assert server.execute(f"SELECT count(DISTINCT xmin::text) FROM {TABLE}").fetchone() == (writers,)
