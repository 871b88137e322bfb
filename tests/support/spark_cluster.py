"""A standalone Spark cluster on loopback: a master and two workers as processes of this machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from airflow_dynamic_tables.runners.spark_home import find_spark_submit, spark_environment
from tests.support.ports import free_port
from tests.support.processes import command_line, descendants, kill_tree, wait_until

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass
class SparkCluster:
    """A master with its pages, and workers that offer one core and one gigabyte each."""

    folder: Path
    port: int = field(default_factory=free_port)
    ui_port: int = field(default_factory=free_port)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The master, as ``--master`` names it."""
        return f"spark://127.0.0.1:{self.port}"

    def _start(self, *daemon: str) -> None:
        spark_class = Path(find_spark_submit(os.environ)).with_name("spark-class")
        environment = {**spark_environment(os.environ), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        environment |= {"SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true", "SPARK_DAEMON_MEMORY": "256m"}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(spark_class), *daemon],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def start_worker(self) -> None:
        """Start a worker, and wait until the master knows it."""
        known = self.workers()
        name = "org.apache.spark.deploy.worker.Worker"
        options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(self.folder))
        self._start(name, *options, self.url)
        wait_until(lambda: set(self.workers()).difference(known), "a worker")

    def start_master(self) -> None:
        """Start the master, and wait until its pages answer."""
        ports = ("--port", str(self.port), "--webui-port", str(self.ui_port))
        self._start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
        wait_until(lambda: self._state() is not None, "the master")

    def running_applications(self) -> list[str]:
        """Ids of the applications that the master knows and that have not ended."""
        return [application["id"] for application in (self._state() or {})["activeapps"]]

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors."""
        started = [child for process in self._processes for child in descendants(process.pid)]
        return [child for child in started if _EXECUTOR in command_line(child)]

    def lose_worker(self) -> None:
        """Kill a worker with its executors."""
        kill_tree(self._processes.pop())

    def stop(self) -> None:
        """End the daemons, and the executors that they started."""
        for process in self._processes:
            kill_tree(process)

    def workers(self) -> list[str]:
        """Ids of the workers that are alive; the master drops one at once when its connection breaks."""
        found = (self._state() or {})["workers"]
        return [str(worker["id"]) for worker in found if worker["state"] == "ALIVE"]

    def _state(self) -> dict[str, Any] | None:
        with suppress(httpx.TransportError, ValueError):  # a page that is not there yet
            state: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.ui_port}/json/", timeout=30).json()
            return state
        return None


@contextmanager
def running_spark_cluster() -> Iterator[SparkCluster]:
    """Start a cluster with two workers; it is gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = SparkCluster(Path(folder))
        try:
            cluster.start_master()
            for _ in range(2):
                cluster.start_worker()
            yield cluster
        finally:
            cluster.stop()
