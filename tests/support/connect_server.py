"""A Spark Connect server of its own: on loopback, with a token that nobody knows."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from airflow_dynamic_tables.runners.spark_home import find_spark_submit, spark_environment
from tests.support.busy_folders import contents_below
from tests.support.ports import free_port
from tests.support.postgres import DRIVER

_UP_SECONDS = 180
"""How long the server may take to listen on a machine that is busy."""

_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=America/New_York",
    "spark.driver.host": "127.0.0.1",
    "spark.eventLog.compress": "false",
    "spark.eventLog.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.reaper.enabled": "true",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class ConnectServer:
    """A server that listens: its port, token and process, and the folder of its log and its log of events."""

    port: int
    token: str
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"

    def said(self) -> str:
        """All that it wrote for people: its log, and what its pages would show."""
        contents = (content for file, content in contents_below(self.folder) if file.suffix != ".class")
        return b"".join(contents).decode(errors="replace")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running_connect_server(
    home: Path | None = None,
    jars: Iterable[Path] = (),
    master: str = "local[2]",
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[ConnectServer]:
    """Start one; it is gone afterwards.

    :param home: the ``SPARK_HOME`` of another version than that of this process.
    :param jars: of the server itself, where Spark comes without it.
    :param conf: settings of Spark, before those of all these servers.
    """
    token = secrets.token_hex(16)
    port = free_port()
    environ = {**os.environ, **({"SPARK_HOME": str(home)} if home is not None else {})}
    environment = {**spark_environment(environ), "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+b") as log:
        settings = {
            **_SETTINGS,
            "spark.connect.grpc.binding.port": str(port),
            "spark.eventLog.dir": f"file://{folder}",
            "spark.jars": ",".join(map(str, [*jars, *([DRIVER] if DRIVER.exists() else [])])),
            **conf,
        }
        command = [
            find_spark_submit(environ),
            *("--master", master, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(text for name, value in settings.items() for text in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        server = ConnectServer(port, token, process, Path(folder))
        try:
            _await(server, Path(folder, "log"))
            yield server
        finally:
            if process.poll() is None:
                server.kill()


def _await(server: ConnectServer, log: Path) -> None:
    until = time.monotonic() + _UP_SECONDS
    while time.monotonic() < until and server.process.poll() is None:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the Spark Connect server is not up:\n{log.read_text()[-4000:]}")
