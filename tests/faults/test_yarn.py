"""Refreshes on YARN with all files in HDFS: containers are killed, a node is lost, a task is cancelled."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import list_entries
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from tests.support.faults.cluster_refreshes import NEXT, SETTINGS, STRUCK, Refresh, check_all_rows_once, define
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import content
from tests.support.faults.victims import Attempt, Site, refresh, sweep
from tests.support.processes import wait_until
from tests.support.yarn import YarnCluster, running_hdfs

pytestmark = [pytest.mark.large, pytest.mark.spark, pytest.mark.timeout(1200)]

ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
CLIENT = dataclasses.replace(
    SETTINGS,
    num_executors=2,
    conf={
        **SETTINGS.conf,
        "spark.yarn.am.memory": "256m",
        **{f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()},
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in ENVIRONMENT.items()},
    },
)
CLUSTER = dataclasses.replace(
    CLIENT,
    deploy_mode="cluster",
    conf={name: value for name, value in CLIENT.conf.items() if name not in ("spark.driver.host", "spark.driver.bindAddress")},
)
BASE = Attempt("base", {"1": [1]})
DRIVER, EXECUTOR = "ApplicationMaster", "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def yarn(java: None) -> Iterator[YarnCluster]:  # noqa: ARG001 - it must be there
    with running_hdfs(with_yarn=True) as started, pytest.MonkeyPatch.context() as environment:
        for name, value in started.environment.items():
            environment.setenv(name, value)
        yield started


@pytest.fixture
def lake(site: Site, yarn: YarnCluster) -> Site:
    """A site with a folder of HDFS."""
    return dataclasses.replace(site, bucket=f"{yarn.hdfs}/{site.home.name}")


pytestmark.append(pytest.mark.parametrize("site", ["sqlite"], indirect=True))


def until_it_writes(lake: Site) -> None:
    def is_there() -> bool:
        paths = [entry.path for entry in list_entries(lake.warehouse)]
        return any(f"/data/{STRUCK.token}/data/_temporary/0/task" in path for path in paths)

    wait_until(is_there, "a task that ended", 600)


@pytest.mark.parametrize("settings", [CLIENT, CLUSTER], ids=["client", "cluster"])
def test_a_refresh(lake: Site, yarn: YarnCluster, settings: SparkSettings) -> None:
    refresh(lake, BASE)
    define(lake, "1L")
    Refresh(lake, "yarn", NEXT, settings).version()
    check_all_rows_once(lake, NEXT)
    assert yarn.running_applications() == []


def test_an_executor_that_is_killed_runs_again(lake: Site, yarn: YarnCluster, fault_report: FaultReport) -> None:
    define(lake, "3000L")
    refreshing = Refresh(lake, "yarn", STRUCK, CLIENT)
    until_it_writes(lake)
    yarn.containers(EXECUTOR)[0].kill()
    fault_report.injected("kill -9 of a container of YARN")
    refreshing.version()
    check_all_rows_once(lake, STRUCK)


def test_a_driver_in_a_container_that_is_killed_starts_again(lake: Site, yarn: YarnCluster, fault_report: FaultReport) -> None:
    define(lake, "3000L")
    refreshing = Refresh(lake, "yarn", STRUCK, CLUSTER)
    until_it_writes(lake)
    for process in yarn.containers(DRIVER):
        process.kill()
    fault_report.injected("kill -9 of a container of YARN")
    refreshing.version()
    check_all_rows_once(lake, STRUCK)


def test_a_driver_in_a_container_ends_when_the_refresh_is_stopped(
    lake: Site, yarn: YarnCluster, fault_report: FaultReport
) -> None:
    refresh(lake, BASE)
    define(lake, "3000L")
    refreshing = Refresh(lake, "yarn", STRUCK, CLUSTER)
    until_it_writes(lake)
    (application,) = yarn.running_applications()
    refreshing.stop()
    fault_report.injected("a task on YARN cancelled")
    assert isinstance(refreshing.error(), JobFailedError)
    wait_until(lambda: not yarn.running_applications(), "the end of the application")
    assert yarn.application(application)["finalStatus"] == "FAILED"
    wait_until(lambda: not yarn.containers(EXECUTOR), "the end of its executors")
    with lake.open() as workspace:
        assert content(workspace) == {"1": [1]}
    define(lake, "1L")
    Refresh(lake, "yarn", NEXT, CLUSTER).version()
    sweep(lake)  # of files that the driver wrote in its last seconds
    check_all_rows_once(lake, NEXT)


def test_a_query_that_fails_in_a_container_says_why_and_computes_once(lake: Site, yarn: YarnCluster) -> None:
    define(lake, "raise_error('no such price')")
    error = Refresh(lake, "yarn", STRUCK, CLUSTER).error()
    assert isinstance(error, JobFailedError)
    assert "no such price" in str(error)
    assert error.application_id is not None
    assert error.application_id.startswith("application_")
    logs = yarn.folder.glob(f"*/logs/{error.application_id}/*/stdout")
    assert [log for log in logs if "has failed before" in log.read_text()], "YARN starts a driver that failed once again"


def test_a_lost_node_costs_no_row(lake: Site, yarn: YarnCluster, fault_report: FaultReport) -> None:
    define(lake, "3000L")
    refreshing = Refresh(lake, "yarn", STRUCK, CLIENT)
    until_it_writes(lake)
    yarn.lose_node()
    fault_report.injected("a node of YARN lost")
    try:
        refreshing.version()
    finally:
        yarn.restart_node()
    check_all_rows_once(lake, STRUCK)
    wait_until(lambda: not yarn.running_applications(), "the end of the application, whose master may be lost", 400)


def test_a_refresh_whose_executors_another_queue_takes_ends_well(
    lake: Site, yarn: YarnCluster, tmp_path: Path, empty_state: Path, fault_report: FaultReport
) -> None:
    define(lake, "30000L")  # the other refresh takes a while to start
    refreshing = Refresh(lake, "yarn", STRUCK, dataclasses.replace(CLIENT, num_executors=3))
    wait_until(lambda: len(yarn.containers(EXECUTOR)) == 3, "more executors than its queue has room for")
    (application,) = yarn.running_applications()
    (tmp_path / "urgent").mkdir()
    other = dataclasses.replace(
        lake,
        home=tmp_path / "urgent",
        database_url=f"sqlite:///{shutil.copy(empty_state, tmp_path / 'urgent')}",
        bucket=f"{lake.bucket}-urgent",
    )
    define(other, "1L")
    Refresh(other, "yarn", NEXT, dataclasses.replace(CLIENT, yarn_queue="urgent")).version()
    fault_report.injected("executors preempted on YARN")
    refreshing.version()
    assert yarn.application(application)["numNonAMContainerPreempted"] > 0
    check_all_rows_once(lake, STRUCK)
    check_all_rows_once(other, NEXT)
    assert yarn.running_applications() == []
