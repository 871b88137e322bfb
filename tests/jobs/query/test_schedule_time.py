"""Queries that name the time, computed by Spark for their schedule time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.definitions.queries.text import bind_times
from tests.support.jobs import refresh
from tests.support.spark_version import since

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]

MIDNIGHT = datetime(2024, 10, 26, 22, 30, tzinfo=UTC)
"""In Berlin it is 00:30 of October 27."""


def rows(spark: SparkSession, planned: RefreshPlan, at: datetime = MIDNIGHT) -> list[dict[str, Any]]:
    timed = replace(planned, timezone="Europe/Berlin", times=bind_times(planned.query, at, "Europe/Berlin", planned.settings))
    result = refresh(spark, timed)
    return [row for file in result.files for row in pq.read_table(file.path.removeprefix("file://")).to_pylist()]


def test_each_function_of_time_returns_the_schedule_time(spark: SparkSession, plan: Plan) -> None:
    query = (
        "SELECT current_date AS a, curdate() AS b, CURRENT_TIMESTAMP AS c, now() AS d, localtimestamp() AS e, "
        "unix_timestamp() AS f, DATE 'yesterday' AS g, "
        "CAST('now' AS DATE) AS h, TIMESTAMP 'today' AS i, CAST('tomorrow' AS TIMESTAMP_NTZ) AS j, 'now()' AS k"
    )
    today = date(2024, 10, 27)
    (row,) = rows(spark, plan(query))
    assert row == {
        "a": today,
        "b": today,
        "c": MIDNIGHT,
        "d": MIDNIGHT,
        "e": datetime.fromisoformat("2024-10-27T00:30:00"),
        "f": int(MIDNIGHT.timestamp()),
        "g": date(2024, 10, 26),
        "h": today,
        "i": datetime(2024, 10, 26, 22, tzinfo=UTC),
        "j": datetime.fromisoformat("2024-10-28T00:00:00"),
        "k": "now()",
    }


@since(4, 0)
def test_a_text_is_converted_by_the_operator(spark: SparkSession, plan: Plan) -> None:
    (row,) = rows(spark, plan("SELECT 'tomorrow'::TIMESTAMP_NTZ AS a, 'today'::DATE AS b"))
    assert row == {"a": datetime.fromisoformat("2024-10-28T00:00:00"), "b": date(2024, 10, 27)}


def test_columns_without_an_alias_keep_their_names(spark: SparkSession, plan: Plan) -> None:
    (row,) = rows(spark, plan("SELECT *, year(now()) FROM (SELECT current_date, date_add(current_date(), 1))"))
    assert row == {
        "current_date()": date(2024, 10, 27),
        "date_add(current_date(), 1)": date(2024, 10, 28),
        "year(now())": 2024,
    }


def test_a_name_is_a_column_where_a_source_has_it(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"Current_Date": ["a column"], "n": [1]}), file)
    orders = SourceBinding("lake.raw.orders", "orders", "parquet", "1", (f"file://{file}",))
    (row,) = rows(spark, plan("SELECT current_date AS a, current_date() AS b FROM orders", sources=(orders,)))
    assert row == {"a": "a column", "b": date(2024, 10, 27)}


def test_a_field_of_a_struct_is_a_column_where_it_is_expanded(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"s": [[{"current_date": "a field"}]]}), file)
    orders = SourceBinding("lake.raw.orders", "orders", "parquet", "1", (f"file://{file}",))
    (row,) = rows(
        spark, plan("SELECT current_date AS a FROM (SELECT o.* FROM (SELECT s[0] AS o FROM orders))", sources=(orders,))
    )
    assert row == {"a": "a field"}


def test_the_time_decides_rows_and_groups(spark: SparkSession, plan: Plan) -> None:
    query = (
        "SELECT d, count(*) AS n, max(current_date) AS today FROM VALUES (DATE '2024-10-27'), (DATE '2024-10-26') AS t(d) "
        "WHERE d >= current_date - INTERVAL 1 DAY GROUP BY d, current_date HAVING d < current_date ORDER BY current_date"
    )
    assert rows(spark, plan(query)) == [{"d": date(2024, 10, 26), "n": 1, "today": date(2024, 10, 27)}]


def test_an_error_names_the_query_as_it_is_written(spark: SparkSession, plan: Plan) -> None:
    with pytest.raises(ValueError, match=r"nothing.*line 1,? pos(ition)? 14"):
        rows(spark, plan("SELECT now(), nothing"))


def test_a_query_that_reads_otherwise_with_a_time_is_refused(spark: SparkSession, plan: Plan) -> None:
    planned = plan("SELECT struct(current_date) AS s")
    times = bind_times("       current_date", MIDNIGHT, "UTC", {})
    moved = tuple(replace(time, start=time.start + 7, end=time.end + 7) for time in times)
    with pytest.raises(ValueError, match=r"schedule time, when current_date is DATE '2024-10-26'.*alias.*other types"):
        refresh(spark, replace(planned, times=moved))
