"""Refreshes by spark-submit on a cluster, which the tests of faults strike while they run."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress

import psutil

from airflow_dynamic_tables.clients.files import list_entries
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.faults.truth import check_all_settled, content, data_files
from tests.support.faults.victims import Attempt, Site
from tests.support.processes import wait_until
from tests.support.spark import SMALL
from tests.support.spark_cluster import SparkCluster

SETTINGS = SparkSettings(
    conf={
        **SMALL,
        "spark.driver.memory": "512m",
        "spark.executor.extraJavaOptions": SMALL["spark.driver.extraJavaOptions"],
        "spark.executor.memory": "512m",
    }
)
QUERY = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- name: revenue
  freshness: 1 day
  partitioned_by: [ds]
  query: >
    SELECT cast(id AS STRING) AS ds, bigint(length(reflect('java.lang.Thread', 'sleep', MILLISECONDS))) AS n
    FROM range(0, 8, 1, 8)
"""
"""Eight tasks; each sleeps, and then writes a file of one row."""
ROWS = {str(day): [4] for day in range(8)}
STRUCK, NEXT = Attempt("struck", {}), Attempt("next", {})


class Refresh:
    """A refresh on a cluster, in a thread of this process."""

    def __init__(self, site: Site, master: str, attempt: Attempt, settings: SparkSettings = SETTINGS) -> None:
        self._runner = SparkSubmitRunner(settings, master, self._read)
        self._request = (site, attempt)
        self.lines: list[str] = []
        self._ended: Version | BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Stop the job, as the task does that is cancelled."""
        self._runner.stop()

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    def version(self) -> Version:
        """Wait for the end of a refresh that succeeds."""
        self._thread.join()
        assert isinstance(self._ended, Version), (self._ended, self.lines[-40:])
        return self._ended

    def error(self) -> BaseException:
        """Wait for the end of a refresh that fails."""
        self._thread.join()
        assert isinstance(self._ended, BaseException), self._ended
        return self._ended

    def _read(self, line: str) -> None:
        self.lines.append(line)

    def _run(self) -> None:
        site, attempt = self._request
        try:
            with site.open() as workspace:
                version = run(workspace, site.request(attempt), lambda plan: self._runner.run(plan, {}))
            assert isinstance(version, Version)
            self._ended = version
        except BaseException as error:
            self._ended = error


def define(site: Site, milliseconds: str) -> None:
    (site.home / "sales.yaml").write_text(QUERY.replace("MILLISECONDS", milliseconds))


def check_all_rows_once(site: Site, attempt: Attempt) -> None:
    with site.open() as workspace:
        assert content(workspace) == ROWS
        check_all_settled(site, workspace)
    assert len([path for path in data_files(site, attempt.token) if path.endswith(".parquet")]) == len(ROWS)


def check_a_hanging_executor_is_overtaken(site: Site, cluster: SparkCluster, settings: SparkSettings, number: int) -> None:
    """Stop an executor while it writes; its task runs on the other one, too, and each row is in the table once.

    :param number: of rows. Each is a file, and there are two tasks.
    """
    query = QUERY.replace("cast(id AS STRING)", "cast(id % 8 AS STRING)").replace("0, 8, 1, 8", f"0, {number}, 1, 2")
    (site.home / "sales.yaml").write_text(query.replace("MILLISECONDS", "1L"))
    conf = {
        **settings.conf,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.maxRecordsPerFile": "1",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
    }
    refreshing = Refresh(site, cluster.url, STRUCK, dataclasses.replace(settings, conf=conf))

    def writes() -> bool:
        written = (entry.path for entry in list_entries(site.tables))
        return any(f"/data/{STRUCK.token}/data/_temporary/" in path and path.endswith(".parquet") for path in written)

    wait_until(lambda: refreshing.has_ended or writes(), "a file of a task", 300)
    hanging = cluster.executors()[0]
    hanging.suspend()
    refreshing.version()
    with suppress(psutil.NoSuchProcess):  # its worker may have killed it
        hanging.resume()
    wait_until(lambda: not hanging.is_running(), "the end of the executor")
    with site.open() as workspace:
        assert content(workspace) == {str(day): [4] * (number // 8) for day in range(8)}
    files = [file for file in data_files(site, STRUCK.token) if file.endswith(".parquet")]
    assert (len(files), [file for file in files if "_temporary" in file]) == (number, [])
