"""Sources of a stream that have no files, on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.exceptions import ConfigurationError, UnsupportedError
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.streaming import follow
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.streams import KAFKA_LOGIN, StreamSite, ids, turn_until

pytestmark = pytest.mark.spark

CONNECTION = "AIRFLOW_CONN_EVENTS-1"


@pytest.fixture
def ticking(site: StreamSite) -> StreamSite:
    declared = "\n- {name: raw.events, format: rate, options: {rowsPerSecond: 20}}"
    return replace(site, source=declared, query="SELECT value AS id FROM raw.events")


@pytest.fixture
def topic(site: StreamSite, monkeypatch: pytest.MonkeyPatch) -> StreamSite:
    monkeypatch.setenv(CONNECTION, json.dumps({"conn_type": "kafka", "extra": KAFKA_LOGIN}))
    declared = "\n- {name: raw.events, format: kafka, conn_id: events-1, options: {subscribe: clicks}}"
    return replace(site, source=declared, query="SELECT offset AS id, CAST(value AS STRING) AS text, topic FROM raw.events")


def submit_to(spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Callable[[RefreshPlan], None]:
    def run_job(plan: RefreshPlan) -> None:
        for name, value in job_environment(workspace, plan).items():
            monkeypatch.setenv(name, value)
        follow(spark, plan, JvmDriver(spark))

    return run_job


@pytest.mark.large
def test_ticks_are_there_once_each(
    ticking: StreamSite, workspace: Workspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a restart; no batch and no refresh by hand reads them otherwise."""
    submit = submit_to(spark, workspace, monkeypatch)
    for wanted in (1, 60):
        with closing(ticking.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda enough=wanted: len(ids(workspace)) >= enough)  # type: ignore[misc]
            work = stream.work
    assert ids(workspace) == list(range(len(ids(workspace))))
    request = RefreshRequest(work.table, work.sources, workspace.now(), "by hand", "somebody", full_refresh=True)
    with pytest.raises(UnsupportedError, match=r"lake\.raw\.events never ends, so only a stream reads it"):
        begin(workspace, request)


def test_what_a_topic_lacks_is_told(
    topic: StreamSite, workspace: Workspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector, the variable of the job, and the connection."""
    submit = submit_to(spark.newSession(), workspace, monkeypatch)
    package = rf"for kafka; name its package .*packages: 'org\.apache\.spark:spark-sql-kafka-0-10_2\.1[23]:{spark.version}'"
    with pytest.raises(ValueError, match=package):
        turn_until(topic.streaming(workspace, submit, lambda: None), lambda: False)
    monkeypatch.delenv("DYNAMIC_TABLES_CONNECTION_events_2d_1")
    lonely = topic.streaming(workspace, lambda plan: follow(spark, plan, JvmDriver(spark)), lambda: None)
    with pytest.raises(ValueError, match=r"environment variable DYNAMIC_TABLES_CONNECTION_events_2d_1 .* is not set"):
        turn_until(lonely, lambda: False)
    monkeypatch.delenv(CONNECTION)
    with pytest.raises(ConfigurationError, match="Airflow connection 'events-1' is not set"):
        turn_until(topic.streaming(workspace, submit, lambda: None), lambda: False)
