"""The worker of a real Spark job is killed while the job writes; Spark itself lives on and knows nothing."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files
from tests.support.faults.victims import Attempt, Site, refresh, start, sweep
from tests.support.processes import wait_until
from tests.support.spark import SMALL

SLOW = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- name: revenue
  freshness: 1 day
  partitioned_by: [ds]
  query: SELECT cast(id AS STRING) AS ds, bigint(length(reflect('java.lang.Thread', 'sleep', 1000L))) AS n FROM range(0, 4, 1, 4)
"""
BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {})
NEXT = Attempt("next", {"2": [20]}, "somebody else", planned=("2",))


def refresh_by_spark(site: Site, attempt: Attempt) -> object:
    """Run an attempt whose job is Spark's."""
    with site.open() as workspace:
        return run(
            workspace, site.request(attempt), lambda plan: SparkSubmitRunner(SparkSettings(conf=SMALL), "local[2]").run(plan, {})
        )


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_a_worker_killed_while_spark_writes(site: Site, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    (site.home / "sales.yaml").write_text(SLOW)
    worker = start(refresh_by_spark, site, STRUCK).process
    pid = worker.pid or 0
    wait_until(lambda: list(site.home.glob("warehouse/*/*/*/data/struck/data/_temporary")), "the first write of Spark")
    (spark,) = children(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        fault_report.injected("kill -9")
        worker.join(60)
        with site.open() as workspace:
            assert lives(spark), "Spark has nobody to tell, and goes on"
            assert content(workspace) == {"1": [1], "2": [2]}
            assert refresh(site, NEXT).number == 2
            wait_until(lambda: not lives(spark), "the end of Spark")
            sweep(site)
            assert data_files(site, "struck") == [], "what it wrote into its own stage after that was gone"
            assert content(workspace) == {"1": [1], "2": [20]}
            check_all_settled(site, workspace)
    finally:
        with suppress(ProcessLookupError):
            os.kill(spark, signal.SIGKILL)
