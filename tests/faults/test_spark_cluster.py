"""A standalone cluster loses executors, workers and drivers while it writes a stage; tasks run twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil
import pytest

from airflow_dynamic_tables.exceptions import JobFailedError
from tests.support.faults.cluster_refreshes import (
    NEXT,
    SETTINGS,
    STRUCK,
    Refresh,
    check_a_hanging_executor_is_overtaken,
    check_all_rows_once,
    define,
)
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content
from tests.support.faults.victims import Attempt, Site, refresh
from tests.support.processes import wait_until
from tests.support.spark_cluster import SparkCluster, running_spark_cluster

pytestmark = [
    pytest.mark.large,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("site", ["sqlite"], indirect=True),
]

BASE = Attempt("base", {"1": [1]})


@pytest.fixture(scope="module")
def cluster(java: None) -> Iterator[SparkCluster]:  # noqa: ARG001 - it must be there
    with running_spark_cluster() as started:
        yield started


def until_it_writes(site: Site) -> None:
    written = f"warehouse/*/*/*/data/{STRUCK.token}/data/_temporary/*/*"
    wait_until(lambda: list(site.home.glob(written)), "a task that ended")


def lose_an_executor(cluster: SparkCluster) -> None:
    cluster.executors()[0].kill()


@pytest.mark.parametrize("strike", [lose_an_executor, SparkCluster.lose_worker])
def test_what_is_lost_runs_again(
    site: Site, cluster: SparkCluster, strike: Callable[[SparkCluster], None], fault_report: FaultReport
) -> None:
    define(site, "3000L")
    refreshing = Refresh(site, cluster.url, STRUCK)
    until_it_writes(site)
    strike(cluster)
    fault_report.injected("part of a Spark cluster lost")
    refreshing.version()
    check_all_rows_once(site, STRUCK)
    while len(cluster.workers()) < 2:
        cluster.start_worker()


def kill_the_driver(_: Refresh) -> None:
    (driver,) = [child for child in psutil.Process().children() if STRUCK.token in " ".join(child.cmdline())]
    driver.kill()


@pytest.mark.parametrize("strike", [kill_the_driver, Refresh.stop])
def test_an_application_ends_with_its_driver(
    site: Site, cluster: SparkCluster, strike: Callable[[Refresh], None], fault_report: FaultReport
) -> None:
    refresh(site, BASE)
    define(site, "3000L")
    refreshing = Refresh(site, cluster.url, STRUCK)
    until_it_writes(site)
    strike(refreshing)
    fault_report.injected("kill -9 of a Spark driver")
    error = refreshing.error()
    assert isinstance(error, JobFailedError)
    assert "spark-submit ended with code -9" in str(error)
    wait_until(lambda: not cluster.running_applications() and not cluster.executors(), "the end of the application")
    with site.open() as workspace:
        assert content(workspace) == {"1": [1]}
    define(site, "1L")
    Refresh(site, cluster.url, NEXT).version()
    check_all_rows_once(site, NEXT)


def test_an_executor_that_hangs_is_overtaken(site: Site, cluster: SparkCluster, fault_report: FaultReport) -> None:
    check_a_hanging_executor_is_overtaken(site, cluster, SETTINGS, 1600)
    fault_report.injected("SIGSTOP")
    with site.open() as workspace:
        check_all_settled(site, workspace)
