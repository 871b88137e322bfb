"""What a query means is the same on every cluster, and as the definition says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, NumberFormatException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, UNLESS_TUNED, decides_rows
from airflow_dynamic_tables.jobs.query import JvmSettings
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]

ODD = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.variable.substitute": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
}
"""What a cluster may have for the sake of older jobs; each changes what one of the columns below says."""

QUERY = r"""
SELECT try_cast('x' AS INT) IS NULL AS casts, '${env:HOME}' AS text, regexp_replace('x', '(?<g>x)', '<${g}>') AS replaced,
    '\\' AS slash, cast(array(NULL) AS STRING) AS nothing, typeof(TIMESTAMP '2024-01-01 00:00:00') AS kind,
    cast(1 AS DECIMAL(38, 10)) * cast(1 AS DECIMAL(38, 10)) AS product, n
FROM (SELECT 1 AS n UNION SELECT 2 EXCEPT SELECT 2 INTERSECT SELECT 3) GROUP BY 8 ORDER BY n
"""


@pytest.fixture
def cluster(spark: SparkSession) -> Iterator[Callable[[dict[str, str]], None]]:
    before = JvmSettings(spark).set_by_anybody()

    def change(settings: dict[str, str]) -> None:
        for name, value in settings.items():
            spark.conf.set(name, value)

    yield change
    for name in JvmSettings(spark).set_by_anybody().keys() - before.keys():
        spark.conf.unset(name)


def rows(spark: SparkSession, planned: RefreshPlan) -> list[dict[str, Any]]:
    files = (file.path.removeprefix("file://") for file in refresh(spark, planned).files)
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def test_a_cluster_does_not_change_what_a_query_means(
    spark: SparkSession,
    plan: Plan,
    cluster: Callable[[dict[str, str]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    meant = rows(spark, plan(QUERY))
    assert [row["n"] for row in meant] == [1, 2]
    assert {(row["text"], row["replaced"], row["slash"]) for row in meant} == {("${env:HOME}", "<x>", "\\")}
    capsys.readouterr()
    cluster(ODD)
    assert rows(spark, plan(QUERY)) == meant
    told = capsys.readouterr().out
    assert all(f"{name}={value}" in told for name, value in ODD.items())


def test_a_definition_says_what_its_query_means(
    spark: SparkSession, plan: Plan, cluster: Callable[[dict[str, str]], None]
) -> None:
    with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
        rows(spark, plan("SELECT cast('x' AS INT) AS n"))
    asked = {"spark.sql.ansi.enabled": "false"}
    cluster(asked)  # spark-submit sets what the definition says
    assert rows(spark, plan("SELECT cast('x' AS INT) AS n", settings=asked)) == [{"n": None}]


def test_how_a_query_is_run_is_up_to_the_cluster(
    spark: SparkSession, plan: Plan, cluster: Callable[[dict[str, str]], None]
) -> None:
    tuned = {
        "spark.sql.autoBroadcastJoinThreshold": "1",
        "spark.sql.catalog.other": "x.y.Catalog",
        "spark.sql.unknown.to.spark": "1",
    }
    cluster(tuned)
    rows(spark, plan("SELECT 1 AS n"))
    assert {name: spark.conf.get(name) for name in tuned} == tuned


@pytest.mark.large
def test_many_folders_are_listed_in_few_tasks(spark: SparkSession, plan: Plan, cluster: Callable[[dict[str, str]], None]) -> None:
    """Spark's default is a task for each of up to 10,000 folders or files."""
    (name,) = UNLESS_TUNED
    cluster({name: "7"})
    rows(spark, plan("SELECT 1 AS n"))
    assert spark.conf.get(name) == "7"
    spark.conf.unset(name)
    refresh(spark, plan("SELECT cast(id AS STRING) AS ds, 1 AS n FROM range(0, 220, 1, 1)", partition_keys=("ds",)))
    tasks = [number for job in spark.sparkContext.statusTracker().getJobIdsForGroup() for number in _tasks(spark, job)]
    assert max(tasks) == 200


def _tasks(spark: SparkSession, job: int) -> list[int]:
    """The number of tasks of each stage of a job."""
    tracker = spark.sparkContext.statusTracker()
    found = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in (found.stageIds if found is not None else ())]
    return [stage.numTasks for stage in stages if stage is not None]


def test_files_are_no_tables(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    rows(spark, plan("SELECT 1 AS n"))
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT * FROM parquet.`{tmp_path}/stage/t1/data`")


def test_every_setting_that_is_named_is_one_that_decides(spark: SparkSession) -> None:
    own = FIXED.keys() - {"spark.sql.adaptive.enabled"}  # how, and not what; the layout of the files hangs on it
    assert [name for name in (*own, *DEFAULTS) if not (spark.conf.isModifiable(name) and decides_rows(name))] == []
