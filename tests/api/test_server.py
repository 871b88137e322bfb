"""``dynamic-tables serve`` as a process, with refreshes in processes; a program that needs no JVM stands for Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from airflow_dynamic_tables.api.server import VARIABLE, KnownHosts, read_token
from airflow_dynamic_tables.exceptions import ConfigurationError
from tests.support import cluster_stand_in

TOKEN = "a-token-that-nobody-guesses"

DEFINITIONS = """
defaults: {{catalog: lake, database: sales}}
sources:
  - {{name: raw.numbers, format: json, path: {data}/numbers, schema: x bigint}}
  - {{name: raw.naps, format: json, path: {data}/naps, schema: x bigint}}
dynamic_tables:
  - {{name: quick, freshness: 1 hour, query: SELECT x FROM raw.numbers}}
  - {{name: slow, freshness: 1 hour, query: SELECT x FROM raw.naps}}
  - {{name: behind, freshness: 1 hour, query: SELECT x FROM slow}}
"""


@dataclass
class Server:
    home: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    clients: list[httpx.Client] = field(default_factory=list)

    def start(self, *options: str) -> httpx.Client:
        command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", "serve", "--port", "0", *options]
        environ = {
            **os.environ,
            "AIRFLOW_HOME": str(self.home),
            "DYNAMIC_TABLES_DEFINITIONS": str(self.home / "definitions"),
            "DYNAMIC_TABLES_TOKEN": TOKEN,
            "SPARK_HOME": str(self.home / "spark"),
        }
        process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, cwd=self.home)
        self.started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Listening at "), line + process.stderr.read()
        address = line.split()[2].rstrip(";")
        self.clients.append(httpx.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60))
        return self.clients[-1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        process = self.started[-1]
        process.send_signal(number)
        code = process.wait(120)
        assert process.stderr is not None
        process.stderr.close()
        return code

    def wake(self) -> None:
        (self.home / "data" / "awake").touch()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    cluster_stand_in.install(tmp_path / "stand_in")
    (tmp_path / "spark" / "bin").mkdir(parents=True)
    (tmp_path / "spark" / "bin" / "spark-submit").symlink_to(tmp_path / "stand_in" / "spark3-submit")
    for name, line in (("numbers", '{"x": 1}'), ("naps", '{"x": 1, "nap": 1}')):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "rows.json").write_text(line)
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "sales.yaml").write_text(DEFINITIONS.format(data=tmp_path / "data"))
    yield made
    made.wake()
    for client in made.clients:
        client.close()
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def refresh(client: httpx.Client, *names: str, key: str | None = None) -> str:
    body = {"tables": [f"lake.sales.{name}" for name in names], "isPeriodic": False, "configuration": {}}
    answer = client.post("/v3/dynamic-tables/refresh", json=body, headers={"Idempotency-Key": key} if key else {})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["jobId"])


def job_when(client: httpx.Client, job_id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        job: dict[str, Any] = client.get(f"/v3/jobs/{job_id}").json()
        if is_so(job):
            return job
        time.sleep(0.2)
    raise AssertionError(job)


def ended(job: dict[str, Any]) -> bool:
    return bool(job["ended"])


def sleeps(client: httpx.Client) -> Callable[[dict[str, Any]], bool]:
    def is_there(job: dict[str, Any]) -> bool:
        return job["refreshes"][0]["state"] == "RUNNING" and bool(
            client.get("/v3/dynamic-tables/lake.sales.slow/history").json()["refreshes"]
        )

    return is_there


@pytest.mark.large
def test_refreshes_are_jobs_that_survive_the_server(server: Server) -> None:
    client = server.start()
    quick = job_when(client, refresh(client, "quick", key="k1"), ended)
    assert quick["refreshes"][0]["error"] is None
    assert quick["state"] == "SUCCEEDED"
    history = client.get("/v3/dynamic-tables/lake.sales.quick/history").json()["refreshes"]
    assert [(line["token"], line["rows"]) for line in history] == [(quick["refreshes"][0]["token"], 1)]
    slow = refresh(client, "behind", "slow", key="k2")
    job_when(client, slow, sleeps(client))
    server.end(signal.SIGKILL)
    client = server.start()
    # The refresh goes on without its server; what waited behind it does not.
    assert refresh(client, "quick", key="k1") == quick["jobId"]
    assert refresh(client, "slow", "behind", key="k2") == slow
    assert client.get(f"/v3/jobs/{slow}").json()["refreshes"][0]["state"] == "RUNNING"
    server.wake()
    went_on = job_when(client, slow, lambda job: job["refreshes"][0]["state"] != "RUNNING")
    assert [(one["table"], one["state"]) for one in went_on["refreshes"]] == [
        ("lake.sales.slow", "SUCCEEDED"),
        ("lake.sales.behind", "ACCEPTED"),  # until its lease is over
    ]
    assert server.end() == 0


@pytest.mark.large
def test_the_server_ends_with_its_refreshes(server: Server) -> None:
    client = server.start("--patience", "1", "--jobs", "1")
    slow = refresh(client, "slow")
    job_when(client, slow, sleeps(client))
    waiting = refresh(client, "quick")
    assert server.end() == 0
    client = server.start()
    first, second = (client.get(f"/v3/jobs/{job}").json()["refreshes"][0] for job in (slow, waiting))
    assert (first["state"], first["error"]) == ("FAILED", "It was stopped before it made a version; the table stays as it was.")
    assert (second["state"], second["error"]) == ("LOST", "The server ended before it began; ask for it again.")
    process = job_when(client, refresh(client, "slow"), lambda job: "jobId" in job["refreshes"][0]["clusterInfo"])
    os.kill(int(process["refreshes"][0]["clusterInfo"]["jobId"]), signal.SIGKILL)
    killed = job_when(client, process["jobId"], ended)["refreshes"][0]
    assert (killed["state"], killed["error"]) == (
        "LOST",
        "Its process was ended by signal 9, and left no version; ask for it again.",
    )
    assert server.end(signal.SIGINT) == 0


__all__ = ["server"]

HALF = b"GET /v3/jobs HTTP/1.1\r\nHost: localhost\r\nX-"
MANY = 600
SECONDS = 60


def connected(client: httpx.Client, stack: ExitStack) -> socket.socket:
    address = urlsplit(str(client.base_url))
    return stack.enter_context(socket.create_connection((address.hostname or "", address.port or 0), timeout=SECONDS))


def answers(client: httpx.Client) -> None:
    with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=SECONDS) as another:
        assert another.get("/v3/jobs").status_code == 200


@pytest.mark.large
def test_half_a_request_keeps_no_other_from_being_answered_and_is_closed(server: Server) -> None:
    client = server.start()
    with ExitStack() as stack:
        ended = connected(client, stack)
        ended.sendall(b"GET /v3/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.recv(12) == b"HTTP/1.1 200"
        ended.sendall(HALF)  # a second request on a connection whose first one was answered
        half = [connected(client, stack) for _ in range(MANY)]
        for each in half:
            each.sendall(HALF)
        answers(client)
        for each in (ended, *half):
            try:
                while each.recv(65_536):
                    pass
            except ConnectionResetError:
                pass
        answers(client)


def test_what_is_no_http_is_answered_by_a_problem(server: Server) -> None:
    client = server.start()
    for garbage in (b"\x16\x03\x01 not http\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"GET " + b"x" * 100_000):
        with ExitStack() as stack:
            each = connected(client, stack)
            each.sendall(garbage)
            answer = b""
            while more := each.recv(65_536):
                answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"content-type: application/problem+json" in head.lower()
        assert b'"type":"urn:airflow-dynamic-tables:problem:malformed"' in body
    answers(client)


def test_a_private_file_or_the_environment_has_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_token(file, {}) == read_token(None, {VARIABLE: TOKEN}) == TOKEN


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (TOKEN, 0o640, "may be read by others; make it yours alone: chmod 600"),
        ("", 0o600, "No token in"),
        ("short", 0o600, "is no word of 20 ASCII characters or more"),
        ("two words that are a sentence", 0o600, "is no word of 20 ASCII characters or more"),
    ],
)
def test_a_token_that_others_may_know_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=message) as refused:
        read_token(file, {})
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("hosts", "is_known"),
    [
        (["localhost:8090"], True),
        (["127.0.0.1"], True),
        (["[::1]:8090"], True),
        (["Gateway.Example"], True),
        (["evil.example"], False),
        (["localhost.evil.example"], False),
        (["localhost:8090@evil.example"], False),
        (["localhost", "evil.example"], False),
        ([], False),
    ],
)
def test_only_known_hosts_are_answered(hosts: list[str], is_known: bool) -> None:
    answered: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        answered.append(scope["path"])

    async def sent(message: Any) -> None:
        answered.append(message.get("status"))

    async def nothing() -> Any:
        return {"type": "http.disconnect"}

    headers = [(b"host", host.encode()) for host in hosts]
    scope = {"type": "http", "method": "GET", "path": "/v3/jobs", "headers": headers}
    asyncio.run(KnownHosts(app, ["gateway.example"])(scope, nothing, sent))
    assert answered[0] == ("/v3/jobs" if is_known else 421)
