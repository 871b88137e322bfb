"""Expectations on a real Spark: what is left out, what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, accepted_values, not_null
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]

ORDERS = """
SELECT * FROM VALUES
  (1, 'DE', 10.0, DATE'2024-03-01'), (2, 'FR', -1.0, DATE'2024-03-01'), (2, 'XX', NULL, DATE'2024-03-01'),
  (3, NULL, 5.0, DATE'2024-03-02'), (NULL, 'de', -2.0, DATE'2024-03-02'), (NULL, 'DE', 3.0, DATE'2024-03-02')
AS v(id, country, amount, ds)
"""
EXPECTATIONS = (
    Expectation("not_null", Action.FAIL, not_null(["id", "country"])),
    Expectation("unique", Action.WARN, unique=("id",)),
    Expectation("unique pair", Action.WARN, unique=("id", "country")),
    Expectation("accepted", Action.WARN, accepted_values({"country": ["DE", "FR"]})),
    Expectation("accepted numbers", Action.WARN, accepted_values({"id": ["1", "2"]})),
    Expectation("accepted dates", Action.WARN, accepted_values({"DS": ["2024-03-01"]})),
    Expectation("positive", Action.WARN, "amount >= 0 -- NULL is not negative"),
)
FOUND = {
    "not_null": 3,
    "unique": 2,
    "unique pair": 0,
    "accepted": 2,
    "accepted numbers": 1,
    "accepted dates": 3,
    "positive": 2,
}


def ids(result: RefreshResult) -> list[Any]:
    tables = [pq.read_table(file.path.removeprefix("file://"), partitioning=None) for file in result.files]
    return sorted((row["id"] for table in tables for row in table.to_pylist()), key=lambda value: value or 0)


def found(result: RefreshResult) -> dict[str, int]:
    return {item.name: item.violations for item in result.expectations}


@pytest.mark.parametrize("keys", [(), ("ds",)], ids=["whole table", "partitioned"])
def test_violations_are_counted_in_what_was_written(spark: SparkSession, plan: Plan, keys: tuple[str, ...]) -> None:
    result = refresh(spark, plan(ORDERS, expectations=EXPECTATIONS, partition_keys=keys))
    assert result.rows == 6
    assert found(result) == FOUND
    assert [item.name for item in result.expectations] == [item.name for item in EXPECTATIONS]


def test_only_the_planned_partitions_count(spark: SparkSession, plan: Plan) -> None:
    planned = plan(ORDERS, expectations=EXPECTATIONS, partition_keys=("ds",), partitions=PartitionSet.of([{"ds": "2024-03-01"}]))
    result = refresh(spark, planned)
    assert result.rows == 3
    assert found(result)["not_null"] == 0
    assert found(result)["positive"] == 1


def test_what_is_to_be_dropped_is_not_written(spark: SparkSession, plan: Plan) -> None:
    dropping = (
        Expectation("known", Action.DROP, not_null(["id"])),
        Expectation("unique", Action.FAIL, unique=("id",)),
        Expectation("positive", Action.DROP, "amount >= 0"),
        Expectation("negative is gone", Action.FAIL, "amount >= 0"),
    )
    result = refresh(spark, plan(ORDERS, expectations=dropping, partition_keys=("ds",)))
    assert ids(result) == [1, 2, 3]
    assert result.rows == 3
    assert found(result) == {"known": 2, "unique": 0, "positive": 2, "negative is gone": 0}


def test_everything_may_be_dropped_and_nothing_need_be_there(spark: SparkSession, plan: Plan) -> None:
    dropping = (Expectation("never", Action.DROP, "amount < -10"), Expectation("unique", Action.FAIL, unique=("id",)))
    result = refresh(spark, plan(f"SELECT * FROM ({ORDERS}) WHERE amount IS NOT NULL", expectations=dropping))
    assert (result.rows, found(result)) == (0, {"never": 5, "unique": 0})


def test_no_rows_violate_nothing(spark: SparkSession, plan: Plan) -> None:
    dropping = Expectation("drop", Action.DROP, "amount > 0")
    grouped = f"SELECT id, country, sum(amount) AS amount, ds FROM ({ORDERS}) WHERE id > 99 GROUP BY ALL"
    result = refresh(spark, plan(grouped, expectations=(*EXPECTATIONS, dropping), partition_keys=("ds",)))
    assert (result.rows, set(found(result).values())) == (0, {0})


def test_the_query_runs_once_although_its_rows_are_counted(spark: SparkSession, plan: Plan) -> None:
    read = spark.sparkContext.accumulator(0)

    def count(number: int) -> int:
        read.add(1)
        return number

    spark.udf.register("counted", count, "int")
    dropping = (Expectation("small", Action.DROP, "n < 90"), Expectation("even", Action.WARN, "n % 2 = 0"))
    result = refresh(spark, plan("SELECT counted(id) AS n FROM range(100)", expectations=dropping))
    assert found(result) == {"small": 10, "even": 45}
    assert read.value == 100


def test_a_column_that_is_not_there_is_named(spark: SparkSession, plan: Plan) -> None:
    with pytest.raises(AnalysisException, match="amont"):
        refresh(spark, plan(ORDERS, expectations=(Expectation("typo", Action.WARN, "amont > 0"),)))
