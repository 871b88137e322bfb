"""What queries say about the time of their run, and the values that are put in its place."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_dynamic_tables.core.refresh.plan import BoundTime, named_times
from airflow_dynamic_tables.definitions.queries.text import bind_times, variation

MIDNIGHT = datetime(2024, 10, 26, 22, 30, tzinfo=UTC)
"""In Berlin it is 00:30 of October 27, a day of 25 hours."""


def bound(query: str, at: datetime = MIDNIGHT, timezone: str = "Europe/Berlin", kind: str = "") -> dict[str, str]:
    settings = {"spark.sql.timestampType": kind} if kind else {}
    return named_times(query, bind_times(query, at, timezone, settings))


def times_in(query: str) -> tuple[BoundTime, ...]:
    return bind_times(query, MIDNIGHT, "Europe/Berlin", {})


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT current_date FROM t", {"current_date": "DATE '2024-10-27'"}),
        ("SELECT datediff(CURRENT_DATE, ds) FROM t", {"CURRENT_DATE": "DATE '2024-10-27'"}),
        ("SELECT curdate ( ) FROM t", {"curdate ( )": "DATE '2024-10-27'"}),
        ("SELECT now(/* it is */)", {"now(/* it is */)": "TIMESTAMP_LTZ '2024-10-26 22:30:00.000000+00:00'"}),
        ("SELECT current_timestamp", {"current_timestamp": "TIMESTAMP_LTZ '2024-10-26 22:30:00.000000+00:00'"}),
        ("SELECT localtimestamp()", {"localtimestamp()": "TIMESTAMP_NTZ '2024-10-27 00:30:00.000000'"}),
        ("SELECT unix_timestamp()", {"unix_timestamp()": "CAST(1729981800 AS BIGINT)"}),
        ("SELECT DATE ' Today '", {"DATE ' Today '": "DATE '2024-10-27'"}),
        ("SELECT CAST('yesterday' AS DATE)", {"'yesterday'": "DATE '2024-10-26'"}),
        ('SELECT try_cast("now" AS date)', {'"now"': "DATE '2024-10-27'"}),
        ("SELECT 'tomorrow'::timestamp", {"'tomorrow'": "TIMESTAMP_LTZ '2024-10-27 23:00:00.000000+00:00'"}),
        ("SELECT TIMESTAMP_NTZ 'today'", {"TIMESTAMP_NTZ 'today'": "TIMESTAMP_NTZ '2024-10-27 00:00:00.000000'"}),
    ],
)
def test_the_value_is_that_of_spark_in_the_time_zone_of_the_table(query: str, values: dict[str, str]) -> None:
    assert bound(query) == values
    assert variation(query) is not None
    assert variation(query, times=times_in(query)) is None


def test_a_timestamp_is_of_the_type_that_the_definition_sets() -> None:
    assert bound("SELECT TIMESTAMP 'now'", kind="TIMESTAMP_NTZ") == {
        "TIMESTAMP 'now'": "TIMESTAMP_NTZ '2024-10-27 00:30:00.000000'"
    }
    assert bound("SELECT now()", kind="TIMESTAMP_NTZ") == {"now()": "TIMESTAMP_LTZ '2024-10-26 22:30:00.000000+00:00'"}


def test_a_midnight_that_clocks_skip_is_the_first_moment_of_its_day() -> None:
    noon = datetime(2024, 9, 8, 16, tzinfo=UTC)  # Santiago put its clocks from 00:00 to 01:00
    assert bound("SELECT TIMESTAMP 'today'", noon, "America/Santiago") == {
        "TIMESTAMP 'today'": "TIMESTAMP_LTZ '2024-09-08 04:00:00.000000+00:00'"
    }


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'current_date', 'now()' FROM t -- now()",
        "SELECT lake.fn.now() FROM t",
        "SELECT now, curdate, localtimestamp FROM t",
        "SELECT unix_timestamp(ts) FROM t",
        "SELECT o.current_date, current_date FROM orders o",
        "SELECT `current_date` FROM t",
        "SELECT ds AS current_date, current_date AS x FROM t",
        "SELECT ds current_date, current_date AS x FROM t",
        "SELECT current_date FROM VALUES (1) AS t(current_date)",
        "WITH a(current_date) AS (SELECT 1) SELECT current_date FROM a",
        "SELECT transform(xs, current_date -> current_date + 1) FROM t",
        "SELECT transform(xs, (current_date, i) -> current_date) FROM t",
        "SELECT c FROM t LATERAL VIEW explode(xs) AS current_date WHERE current_date > 1",
        "SELECT s.*, current_date FROM (SELECT named_struct('current_date', 1) AS s)",
        "SELECT s.* FROM (SELECT from_json(j, 'Current_Date date') AS s FROM t) WHERE current_date > 1",
        "SELECT struct(current_date) AS s FROM t",
        "SELECT `now()` FROM (SELECT now() FROM t)",
        "SELECT `date_sub(current_date(), 1)` FROM (SELECT date_sub(current_date, 1) FROM t)",
        "SELECT * FROM t WHERE ds > 'today'",
        "SELECT to_date('today'), CAST('today UTC' AS DATE), TIMESTAMP '12:30' FROM t",
        "SELECT r'now'::date, DATE 'to\\u0064ay' FROM t",
    ],
)
def test_what_may_mean_something_else_is_left_alone(query: str) -> None:
    assert bound(query) == {}


def test_a_column_of_that_name_leaves_other_functions() -> None:
    query = "SELECT o.current_date, current_date, now() FROM orders o"
    assert list(bound(query)) == ["now()"]
    assert "CURRENT_DATE" in (variation(query, times=times_in(query)) or "")


def test_conditions_are_not_bound() -> None:
    assert "now()" in (variation("SELECT now() AS x", ["x > now()"], times=times_in("SELECT now() AS x")) or "")
