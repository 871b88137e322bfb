"""Every runner joins here with a factory; the contract suite then runs over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.jobs import main
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.query_tests import run_query_tests
from airflow_dynamic_tables.runners.base import NO_VARIABLES, Runner
from airflow_dynamic_tables.runners.registry import runner_for
from airflow_dynamic_tables.runners.spark_home import variables_set
from airflow_dynamic_tables.runners.spark_submit import job_failure
from tests.support.busy_folders import contents_below
from tests.support.connect_server import ConnectServer
from tests.support.jobs import make_plan
from tests.support.postgres import DRIVER

SMALL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.eventLog.compress": "false",
    "spark.eventLog.enabled": "true",
    "spark.jars": str(DRIVER),
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""What makes a Spark of a test's own start fast, listen to nobody and know PostgreSQL; a server has it already."""


@dataclass
class Bench:
    new: Callable[[Callable[[str], None]], Runner]
    events: Callable[[], str]
    secrets: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)

    def runner(self) -> Runner:
        return self.new(self.lines.append)


class JobRunner(Runner):
    """The job that spark-submit starts, in the JVM of the tests: it says of a plan what it says there, and nothing starts."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        """See :meth:`Runner.run`."""
        with variables_set(environment):
            code = main.run(self._spark.newSession(), plan.plan_location)
        if code != 0:
            raise job_failure(plan) or JobFailedError("the job left no error")

    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:  # noqa: ARG002
        """See :meth:`Runner.run_query_tests`."""
        spark = self._spark.newSession()
        return run_query_tests(spark, tests, JvmDriver(spark))

    def stop(self) -> None:
        """Never called: see :func:`bench`."""
        raise NotImplementedError


_CONNECT = pytest.param("connect_server", id="spark-connect")
"""The runner, and by its value the server that its tests share."""


@pytest.fixture(params=["spark-submit", _CONNECT])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "connect_server":
        return _over_connect(request)
    request.getfixturevalue("java")
    events = tmp_path / "events"
    events.mkdir()
    settings = SparkSettings(conf={**SMALL, "spark.eventLog.dir": events.as_uri()})
    return Bench(
        lambda on_line: runner_for(settings, "local[2]", on_line),
        lambda: b"".join(content for _, content in contents_below(events)).decode(errors="replace"),
    )


@pytest.fixture(params=[pytest.param("spark", id="job"), _CONNECT])
def quick_bench(request: pytest.FixtureRequest) -> Bench:
    """For what only the job has to say: without the start of a spark-submit for every case."""
    if request.param == "connect_server":
        return _over_connect(request)
    spark: SparkSession = request.getfixturevalue("spark")
    return Bench(lambda _on_line: JobRunner(spark), lambda: "")


def _over_connect(request: pytest.FixtureRequest) -> Bench:
    server: ConnectServer = request.getfixturevalue("connect_server")
    return Bench(lambda on_line: runner_for(SparkSettings(), server.url, on_line), server.said, (server.token,))


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., RefreshPlan]:
    def make(query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
        made = make_plan(tmp_path, query, *sources, **fields)
        write_text(made.plan_location, made.to_json())
        return made

    return make
