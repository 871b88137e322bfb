"""The job as spark-submit runs it: from its zip, in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import delete_folder, exists, read_text, write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.support.spark import SMALL
from tests.support.spark_version import SPARK_VERSION

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java")]

Plan = Callable[..., RefreshPlan]

SETTINGS = SparkSettings(conf=SMALL)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job finds the package in its zip, not because a test runs where the code is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)


def run(plan: RefreshPlan) -> list[str]:
    lines: list[str] = []
    write_text(plan.plan_location, plan.to_json())
    SparkSubmitRunner(SETTINGS, "local[2]", lines.append).run(plan, {})
    return lines


def test_a_job_leaves_its_result(plan: Plan) -> None:
    planned = plan("SELECT '1' AS ds, 1 AS n", partition_keys=("ds",))
    lines = run(planned)
    result = RefreshResult.from_json(read_text(planned.result_location))
    assert (result.rows, result.partitions) == (1, ({"ds": "1"},))
    assert result.application_id.startswith("local-")
    assert f"Refresh of lake.sales.t: 1 rows, 1 files, {result.bytes} bytes" in lines
    assert f"Spark application {result.application_id} of local[2]" in lines
    assert len(lines) < 30, "warnings only, and what Spark says before it has a log"


LOG = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = MINE %m%n
"""


@pytest.mark.large
def test_who_configured_the_log_of_spark_keeps_it(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "log.properties").write_text(LOG)
    of_log4j = f"{SETTINGS.conf['spark.driver.extraJavaOptions']} -Dlog4j2.configurationFile={tmp_path}/log.properties"
    assert any(line.startswith("MINE Successfully stopped") for line in log_of(plan, "spark.driver.extraJavaOptions", of_log4j))
    assert any("INFO SparkContext: Successfully stopped" in line for line in log_of(plan, "spark.log.level", "INFO"))


def log_of(plan: Plan, setting: str, value: str) -> list[str]:
    lines: list[str] = []
    with pytest.raises(JobFailedError):
        SparkSubmitRunner(SparkSettings(conf={**SETTINGS.conf, setting: value}), "local[2]", lines.append).run(
            plan("SELECT 1"), {}
        )
    return lines


TOO_BAD = "[USER_RAISED_EXCEPTION] too bad SQLSTATE: P0001" if SPARK_VERSION >= (4,) else "too bad"


@pytest.mark.large
def test_a_job_that_fails_says_why_in_sparks_words(plan: Plan) -> None:
    planned = plan("SELECT cast(raise_error('too bad') AS int) AS n")
    with pytest.raises(JobFailedError) as caught:
        run(planned)
    assert str(caught.value) == TOO_BAD
    assert caught.value.application_id is not None
    assert f"Refresh of lake.sales.t failed: {TOO_BAD}" in caught.value.log_tail
    with pytest.raises(FileNotFoundError):
        read_text(planned.result_location)


@pytest.mark.large
def test_a_job_ends_when_its_plan_is_deleted(plan: Plan) -> None:
    """As when the refresh is stopped, or given up by the next one, while the driver runs elsewhere."""
    planned = plan("SELECT reflect('java.lang.Thread', 'sleep', 600000L) AS n")
    write_text(planned.plan_location, planned.to_json())
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if line.startswith("Spark: 0 of"):
            delete_folder(planned.stage, planned.plan_location)

    with pytest.raises(JobFailedError, match="spark-submit ended with code 1"):
        SparkSubmitRunner(SETTINGS, "local[2]", hear).run(planned, {})
    assert f"The plan {planned.plan_location} was deleted: the refresh was stopped." in lines
    assert not exists(planned.error_location)


@pytest.mark.large
def test_a_job_that_dies_before_it_can_speak_is_quoted(plan: Plan) -> None:
    with pytest.raises(JobFailedError, match=r"spark-submit ended with code 1: .*_plan\.json"):
        SparkSubmitRunner(SETTINGS, "local[2]").run(plan("SELECT 1"), {})


@pytest.mark.large
def test_a_plan_that_cannot_be_read_is_one_sentence(plan: Plan) -> None:
    planned = plan("SELECT 1")
    write_text(planned.plan_location, planned.to_json()[:-100])
    with pytest.raises(JobFailedError) as caught:
        SparkSubmitRunner(SETTINGS, "local[2]").run(planned, {})
    said = f"spark-submit ended with code 1: Error: the plan {planned.plan_location} cannot be read: "
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("; refresh again.")
    assert "Traceback" not in caught.value.log_tail


NO_CLIENT = "give Spark the client of this store, for example by spark: {{packages: '{}:VERSION'}}"


@pytest.mark.large
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_stage_in_a_store_whose_client_spark_lacks_is_one_sentence(plan: Plan, scheme: str) -> None:
    planned = dataclasses.replace(plan("SELECT 1"), stage=f"{scheme}://lake/stage")
    said = re.escape(NO_CLIENT.format("org.apache.hadoop:hadoop-aws"))
    with pytest.raises(
        JobFailedError, match=rf"{scheme}://lake/stage.* cannot be read: .*; {said} with .* s3a://; refresh again"
    ):
        SparkSubmitRunner(SETTINGS, "local[2]").run(planned, {})


@pytest.mark.large
@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("s3a://lake/orders", "org.apache.hadoop:hadoop-aws"),
        ("gs://lake/orders", "com.google.cloud.bigdataoss:gcs-connector"),
        ("abfss://lake@account.dfs.core.windows.net/orders", "org.apache.hadoop:hadoop-azure"),
    ],
)
def test_a_source_in_a_store_whose_client_spark_lacks_is_one_sentence(plan: Plan, folder: str, package: str) -> None:
    source = SourceBinding("raw.orders", "orders", "parquet", "v1", (f"{folder}/1.parquet",), schema="n INT")
    with pytest.raises(JobFailedError, match=f"; {re.escape(NO_CLIENT.format(package))}"):
        run(plan("SELECT n FROM orders", source))


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_a_missing_java_is_one_sentence(plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    monkeypatch.setattr(os, "environ", environ | {"PATH": str(tmp_path)} | ({"JAVA_HOME": home} if home else {}))
    with pytest.raises(ConfigurationError, match=r"There is no java .*; Spark needs Java 17: apt-get install"):
        SparkSubmitRunner(SETTINGS, "local[2]").run(plan("SELECT 1"), {})
