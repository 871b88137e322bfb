"""Another user of the machine who listens on the port of a server, before it does or after it died, is sent nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.processes import Process
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.runners.local import server as servers
from airflow_dynamic_tables.runners.local.folder import Options, Server, ServerFolder
from airflow_dynamic_tables.runners.local.relay import relayed
from airflow_dynamic_tables.runners.local.server import State, answered_version, start, status, stop
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner
from tests.support.jobs import make_plan
from tests.support.ports import free_port

SECONDS = 120

_STRANGER = r"""
import contextlib, os, pathlib, re, socket, sys, threading, time
port, command = int(sys.argv[1]), sys.argv[2].encode()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print("looking", flush=True)
while not port:
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes()
        except OSError:
            continue
        found = re.search(rb"spark.connect.grpc.binding.port=(\d+)", line)
        if found and command in line:
            port = int(found[1])
listener = socket.create_server(("127.0.0.1", port))
print("listening", port, flush=True)

def hear(connection):
  with contextlib.suppress(ConnectionError):
    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # the settings with which HTTP/2 begins
    while heard := connection.recv(65536):
        print("heard", heard, flush=True)

while True:
    threading.Thread(target=hear, args=(listener.accept()[0],), daemon=True).start()
"""


_SILENT = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(600)
"""


@contextmanager
def stranger(log: Path, port: int = 0, command: str = "") -> Iterator[None]:
    """A process of another user, where the test may make one, that listens on a port, or on that of a command line."""
    with log.open("w") as file, subprocess.Popen([sys.executable, "-c", _STRANGER, str(port), command], stdout=file) as process:
        try:
            until(lambda: "looking" in log.read_text() if not port else "listening" in log.read_text())
            yield
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerFolder]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    folder = ServerFolder.of("strangers")
    yield folder
    stop(folder)


@pytest.mark.large
@pytest.mark.spark
def test_one_who_listens_before_and_after_the_server_hears_nothing(
    folder: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "heard.txt"
    with stranger(log, command=str(folder.work)):
        monkeypatch.setattr(servers, "_PORTS", 1)
        with pytest.raises(JobFailedError, match=r"Another process took the port of the Spark server .*spark-submit"):
            start(folder, Options())
        assert "listening" in log.read_text()
        assert "heard" not in log.read_text()
        server, is_new = start(folder, Options())
    assert is_new
    process = folder.process()
    assert process is not None
    process.signal(signal.SIGKILL)
    until(lambda: not process.is_alive)
    with stranger(log, port=server.port):
        assert status(folder).state is State.DIED
        assert answered_version(folder, server, process, SECONDS) is None
        another, is_new = start(folder, Options())
        assert is_new
        assert another.port != server.port
        assert status(folder).state is State.RUNNING
        assert "heard" not in log.read_text()


@pytest.fixture
def living() -> Iterator[Process]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield Process.in_stat(Path(f"/proc/{process.pid}/stat").read_text())
        process.kill()


def test_a_job_whose_server_lost_its_port_sends_nothing_and_says_who_to_look_for(
    folder: ServerFolder, tmp_path: Path, living: Process
) -> None:
    port, log = free_port(), tmp_path / "heard.txt"
    server = Server(port, "s3cr3t-token", Options(), datetime.now(UTC))
    with stranger(log, port=port):
        assert answered_version(folder, server, living, 1) is None
        with relayed(folder.path, living, port) as (target, relay):
            address = f"{server.address}/;token={server.token}"
            runner = SparkConnectRunner(SparkSettings(), address, patience=1, target=target)
            with pytest.raises(JobFailedError, match="did not answer"):
                runner.run(make_plan(tmp_path, "SELECT 1"), {"X_PASSWORD": "s3cr3t"})
            with pytest.raises(
                JobFailedError, match=rf"Another process listens on port {port} .* received neither the token nor"
            ):
                relay.refuse_stranger()
        assert "heard" not in log.read_text()
    assert not list(folder.path.glob("relay-*"))


def test_a_server_that_is_merely_slow_is_no_stranger(folder: ServerFolder) -> None:
    listener = subprocess.Popen([sys.executable, "-c", _SILENT], stdout=subprocess.PIPE, text=True)
    assert listener.stdout is not None
    port = int(listener.stdout.readline())
    process = Process.in_stat(Path(f"/proc/{listener.pid}/stat").read_text())
    server = Server(port, "token", Options(), datetime.now(UTC))
    try:
        assert answered_version(folder, server, process, 1) is None
        with relayed(folder.path, process, port) as (_, relay):
            relay.refuse_stranger()
    finally:
        listener.kill()
        listener.communicate()
