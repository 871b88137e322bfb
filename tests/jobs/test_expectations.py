"""Expectations on a real Spark: what is left out, what is counted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, Relationship, accepted_values, not_null
from airflow_dynamic_tables.core.refresh.plan import DroppedRows, RefreshPlan, RefreshResult, SourceBinding
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


@pytest.mark.large
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


def test_dropped_rows_are_kept_with_the_expectations_that_they_violate(spark: SparkSession, plan: Plan) -> None:
    dropping = (
        Expectation("known", Action.DROP, not_null(["id"])),
        Expectation("it's positive", Action.DROP, "amount >= 0 -- or unknown"),
        Expectation("small", Action.WARN, "amount < 3"),
    )
    planned = plan(ORDERS, expectations=dropping, partition_keys=("ds",))
    started = datetime(2024, 3, 31, 23, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-2)))
    dropped = DroppedRows("lake.sales.t__dropped", "t2", planned.stage.replace("t1", "t2"), started)
    result = refresh(spark, replace(planned, dropped=dropped))
    assert (result.rows, found(result)) == (3, {"known": 2, "it's positive": 2, "small": 2})
    writing = planned.of_dropped(dropped)
    kept = RefreshResult.from_json(Path(writing.result_location.removeprefix("file://")).read_text())
    assert (kept.token, kept.rows, kept.partitions) == ("t2", 3, ({"dropped_on": "2024-04-01", "dropped_by": "t1"},))
    assert {column.name: column.type for column in kept.columns} == {
        "dropped_on": "string",
        "dropped_by": "string",
        "dropped_at": "timestamp",
        "dropped_for": "array<string>",
        **{column.name: column.type for column in result.columns},
    }
    assert all(column.nullable for column in kept.columns), "rows of another refresh may have nulls anywhere"
    assert all(file.path.startswith(f"{writing.data_location}/") for file in kept.files)
    rows = [row for file in kept.files for row in pq.read_table(file.path.removeprefix("file://"), partitioning=None).to_pylist()]
    assert {row["dropped_at"] for row in rows} == {started}
    assert sorted((row["dropped_for"], row["id"], row["country"]) for row in rows if row["id"] is not None) == [
        (["it's positive"], 2, "FR")
    ]
    assert sorted((row["dropped_for"], row["country"]) for row in rows if row["id"] is None) == [
        (["known"], "DE"),
        (["known", "it's positive"], "de"),
    ]


def test_a_column_of_the_query_may_not_hide_one_of_the_dropped_rows(spark: SparkSession, plan: Plan) -> None:
    dropping = (Expectation("known", Action.DROP, not_null(["id"])),)
    dropped = DroppedRows("lake.sales.t__dropped", "t2", "file:///nowhere/t2", datetime(2024, 3, 1, tzinfo=UTC))
    planned = plan("SELECT id, 1 AS Dropped_For FROM range(9)", expectations=dropping, dropped=dropped)
    with pytest.raises(ValueError, match="has a column 'Dropped_For' of its own"):
        refresh(spark, planned)


def test_rows_that_are_others_each_time_are_not_kept(spark: SparkSession, plan: Plan) -> None:
    """The query runs again for them, so they would not be those that were left out."""
    dropping = (Expectation("lucky", Action.DROP, "n > 0.5"),)
    spark.udf.register("chance", random.random, "double")
    planned = plan("SELECT id, chance() AS n FROM range(2000)", expectations=dropping)
    dropped = DroppedRows("lake.sales.t__dropped", "t2", planned.stage.replace("t1", "t2"), datetime(2024, 3, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="when it ran again, so it does not return the same rows"):
        refresh(spark, replace(planned, dropped=dropped))
    assert not Path(planned.result_location.removeprefix("file://")).exists()


def test_rows_are_compared_with_those_of_the_other_partitions(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    known = {"id": [1, 3, 8, 8, None], "ds": ["1", "2", "3", "3", "2"], "country": ["DE", "FR", "DE", "DE", "IT"]}
    pq.write_table(pa.table(known), tmp_path / "current.parquet")
    current = SourceBinding("lake.sales.t", "t_compared", "parquet", "v1", (f"file://{tmp_path}/current.parquet",))
    expectations = (
        Expectation("everywhere", Action.FAIL, unique=("ID",), across_partitions=True),
        Expectation("pair", Action.WARN, unique=("id", "country"), across_partitions=True),
        Expectation("here", Action.WARN, unique=("id",)),
        Expectation("new", Action.WARN, unique=("more",), across_partitions=True),
    )
    planned = plan(
        "SELECT * FROM VALUES (1, 'DE', '1', 1), (3, 'DE', '1', 1), (8, 'DE', '1', 2), (8, 'IT', '1', 3), (NULL, 'IT', '1', 4), "
        "(7, 'IT', '1', 5) AS v(id, country, ds, more)",
        expectations=expectations,
        partition_keys=("ds",),
        partitions=PartitionSet.of([{"ds": "1"}]),
        compared=current,
    )
    assert found(refresh(spark, planned)) == {"everywhere": 3, "pair": 1, "here": 2, "new": 2}
    first = replace(planned, compared=None)
    assert found(refresh(spark, first)) == {"everywhere": 2, "pair": 0, "here": 2, "new": 2}, "a table without a version"


STAFF = "SELECT * FROM VALUES (1, 'DE', NULL), (2, 'DE', 1), (2, 'FR', 7), (3, NULL, 7), (4, 'IT', 4) AS v(id, country, boss)"


def related(name: str, columns: tuple[str, ...], to: str, to_columns: tuple[str, ...]) -> Expectation:
    return Expectation(name, Action.FAIL, relationship=Relationship(columns, to, to_columns))


def bound(path: Path, name: str, **columns: Any) -> SourceBinding:
    pq.write_table(pa.table(columns), path / f"{name}.parquet")
    return SourceBinding(f"lake.sales.{name}", f"sales_{name}", "parquet", "v1", (f"file://{path}/{name}.parquet",))


def test_rows_without_a_row_in_the_other_table_violate_a_relationship(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    known = bound(tmp_path, "known", key=[2, 2, 1, None], land=["DE", "FR", "IT", "DE"])
    empty = bound(tmp_path, "empty", key=pa.array([], pa.int64()))
    expectations = (
        related("one", ("ID",), "lake.sales.known", ("key",)),
        related("pair", ("id", "country"), "lake.sales.known", ("key", "LAND")),
        related("nulls", ("boss",), "lake.sales.known", ("key",)),
        related("empty", ("boss",), "lake.sales.empty", ("key",)),
    )
    planned = plan(STAFF, expectations=expectations, references=(known, empty))
    assert found(refresh(spark, planned)) == {"one": 2, "pair": 2, "nulls": 3, "empty": 4}


@pytest.mark.parametrize(
    ("column", "message"),
    [("land", "'id' is int, and 'land' of lake.sales.known is string"), ("more", "lake.sales.known has no column 'more'")],
)
def test_columns_that_cannot_be_compared_fail(spark: SparkSession, plan: Plan, tmp_path: Path, column: str, message: str) -> None:
    known = bound(tmp_path, "known", key=[2], land=["DE"])
    expectations = (related("one", ("id",), "lake.sales.known", (column,)),)
    with pytest.raises(ValueError, match=message):
        refresh(spark, plan(STAFF, expectations=expectations, references=(known,)))


def test_a_relationship_of_a_table_to_itself(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    """The other rows are those of the refresh and of the partitions that it does not replace."""
    current = bound(tmp_path, "t", id=[7, 4], country=["FR", "DE"])
    planned = plan(
        STAFF,
        expectations=(
            related("boss", ("boss",), "lake.sales.t", ("id",)),
            related("new", ("boss",), "lake.sales.t", ("boss",)),
        ),
        partition_keys=("country",),
        partitions=PartitionSet.of([{"country": "DE"}, {"country": "IT"}]),
    )
    assert found(refresh(spark, planned)) == {"boss": 0, "new": 0}
    fr = replace(planned, partitions=PartitionSet.of([{"country": "FR"}]))
    assert found(refresh(spark, fr))["boss"] == 1, "a table without a version"
    others = replace(current, state=None)
    assert found(refresh(spark, replace(fr, compared=others)))["boss"] == 1, "7 was in a partition that is replaced"
    elsewhere = bound(tmp_path, "elsewhere", id=[7], country=["DE"])
    assert found(refresh(spark, replace(fr, compared=elsewhere))) == {"boss": 0, "new": 0}
