"""One server for a user and a state: started once, found, private, ended when nobody uses it, replaced when it hangs or dies."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession as ConnectSession

from airflow_dynamic_tables.clients.processes import Process, started
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, JobFailedError
from airflow_dynamic_tables.runners.local.folder import Options, Server, ServerFolder
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner
from airflow_dynamic_tables.runners.local.server import State, answered_version, running, start, status, stop
from airflow_dynamic_tables.runners.local.watching import CONF, pools_file
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner
from tests.support.postgres import PostgresServer
from tests.support.processes import command_lines

SECONDS = 120
"""How long a condition may take to come true."""

DATABASE = "sqlite:///state.db"

DEFINITIONS = """\
dynamic_tables:
  - {name: lake.sales.numbers, freshness: 1 day, query: SELECT id AS n FROM range(3)}
  - {name: lake.sales.other, freshness: 1 day, query: SELECT 1 AS x, spark: {driver_memory: 1g}}
"""


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The temporary folder of every process here; whatever server is left at the end is ended."""
    path = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(path))
        patch.setenv("TMPDIR", str(path))
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield path
        stop(ServerFolder.of(DATABASE))


@pytest.fixture
def folder(temporary: Path) -> ServerFolder:
    """That of a server which the tests of this module share: whoever needs one that runs starts it, or finds it."""
    assert Path(tempfile.gettempdir()) == temporary
    return ServerFolder.of(DATABASE)


@pytest.fixture
def idle_folder(temporary: Path) -> ServerFolder:
    assert Path(tempfile.gettempdir()) == temporary
    folder = ServerFolder.of("another")
    folder.forget()
    return folder


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def process_of(folder: ServerFolder) -> Process:
    process = folder.process()
    assert process is not None
    return process


def command(*words: str) -> list[str]:
    module = "airflow_dynamic_tables.cli.main"
    return [sys.executable, "-m", module, "spark", *words, "--database-url", DATABASE]


@pytest.mark.large
@pytest.mark.spark
def test_two_starts_at_once_make_one_server_that_status_shows_and_stop_ends_with_its_family(folder: ServerFolder) -> None:
    stop(folder)
    starts = [subprocess.Popen(command("start", "-o", "json"), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    shown = [json.loads(one.communicate()[0]) for one in starts]
    assert [one.returncode for one in starts] == [0, 0]
    assert shown[0]["pid"] == shown[1]["pid"] == process_of(folder).pid
    assert shown[0]["state"] == "running"
    assert shown[0]["spark_version"].startswith("4.")

    looked = subprocess.run(command("status", "-o", "json"), capture_output=True, text=True, check=True)
    passing = {"age_seconds": 0, "idle_seconds": 0}
    assert json.loads(looked.stdout) | passing == shown[0] | passing

    family = process_of(folder).session()
    assert len(family) > 1
    assert subprocess.run(command("stop"), capture_output=True, check=True).returncode == 0
    assert not any(member.is_alive for member in family)
    assert status(folder).state is State.STOPPED
    assert not stop(folder)


@pytest.mark.large
@pytest.mark.spark
def test_nobody_else_reads_the_token_or_gets_in_without_it(folder: ServerFolder) -> None:
    server, _ = start(folder, Options())
    files = [folder.path, *folder.path.iterdir(), pools_file(folder)]
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files} == {0}

    lines = "\n".join(command_lines())
    assert str(folder.work) in lines
    assert server.token not in lines
    assert server.token not in folder.log.read_text() + repr(server)

    assert answered_version(folder, server, folder.process(), SECONDS) is not None
    assert answered_version(folder, replace(server, token="guessed"), folder.process(), SECONDS) is None
    listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True).stdout
    ours = {line.split()[1] for line in listening.splitlines() if f":{server.port:04X} " in line and " 0A " in line}
    assert ours in ({f"0100007F:{server.port:04X}"}, {f"0000000000000000FFFF00000100007F:{server.port:04X}"})


@pytest.mark.large
@pytest.mark.spark
def test_one_that_hangs_is_told_and_replaced_by_whoever_needs_it(folder: ServerFolder) -> None:
    server, _ = start(folder, Options())
    process = process_of(folder)
    process.signal(signal.SIGSTOP)
    assert status(folder).state is State.HUNG
    with folder.locked(1):
        assert status(folder).state is State.CHANGING
    another, is_new = start(folder, Options(), answer_seconds=1)
    assert is_new
    assert not process.is_alive
    assert another.token != server.token
    assert answered_version(folder, another, folder.process(), SECONDS) is not None


@pytest.mark.large
@pytest.mark.spark
def test_one_that_was_killed_is_told_and_the_next_one_ends_when_nobody_uses_it(folder: ServerFolder) -> None:
    start(folder, Options())
    process = process_of(folder)
    process.signal(signal.SIGKILL)
    until(lambda: not process.is_alive)
    assert status(folder).state is State.DIED
    assert running(folder) is None

    start(folder, Options(idle_seconds=8))  # less, and on a busy machine it would end before it has answered
    watcher = folder.process("watcher")
    assert watcher is not None
    watcher.signal(signal.SIGKILL)
    until(lambda: folder.process("watcher") is None)
    _, is_new = start(folder, Options())  # brings another watcher
    assert not is_new
    last = process_of(folder)
    until(lambda: not last.is_alive)
    assert status(folder).state is State.STOPPED


@pytest.mark.spark
def test_a_refresh_runs_on_it_while_it_is_there_and_says_so(
    folder: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.yaml").write_text(DEFINITIONS)
    options = ("--definitions", "tables.yaml", "--database-url", DATABASE, "-o", "json")
    refresh = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", "refresh"]
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "DYNAMIC_TABLES_WAREHOUSE": f"file://{tmp_path}/warehouse"}

    start(folder, Options())
    warm = subprocess.run([*refresh, "numbers", *options], env=environ, capture_output=True, text=True, check=False)
    assert warm.returncode == 0, warm.stderr
    assert json.loads(warm.stdout)["rows"] == 3
    assert "Using the warm Spark server on this machine" in warm.stderr

    # What only spark-submit can be told is left to it; here that finds no Java.
    environ["JAVA_HOME"] = "/no/java"
    other = subprocess.run([*refresh, "other", *options], env=environ, capture_output=True, text=True, check=False)
    assert "Using spark-submit, not the warm Spark server on this machine: spark.driver_memory is for" in other.stderr
    assert "There is no java" in other.stderr


@pytest.mark.large
@pytest.mark.postgres
@pytest.mark.spark
def test_a_jar_of_a_definition_comes_with_its_refresh_whoever_started_the_server(
    folder: ServerFolder, tmp_path: Path, postgres: PostgresServer, postgres_driver: Path
) -> None:
    """The server may have ended as idle, and the next task has started it without the jar."""
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    name = url.rpartition("/")[2]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders AS SELECT 7 AS n")
    (tmp_path / "catalogs.yaml").write_text(f"catalogs: [{{name: shop, type: jdbc, connection-params: {{url: '{url}'}}}}]")
    (tmp_path / "tables.yaml").write_text(
        f"defaults: {{format: jdbc}}\nsources: [{{name: shop.{name}.orders, format: jdbc}}]\n"
        f"dynamic_tables: [{{name: shop.{name}.copy, freshness: 1 day, spark: {{jars: {postgres_driver}}}, "
        f"query: SELECT n FROM shop.{name}.orders}}]\n"
    )
    refresh = [
        sys.executable,
        "-m",
        "airflow_dynamic_tables.cli.main",
        "refresh",
        f"shop.{name}.copy",
        "--database-url",
        DATABASE,
    ]
    options = ("--definitions", str(tmp_path / "tables.yaml"), "--catalogs", str(tmp_path / "catalogs.yaml"))
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    start(folder, Options())
    done = subprocess.run([*refresh, *options], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Using the warm Spark server on this machine" in done.stderr
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM copy").fetchall() == [(7,)]


_KILLED = """
import sys
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner
with LocalServerRunner(SparkSettings(), sys.argv[1], print)._on_server() as runner, runner._driven({}) as (spark, _):
    spark.registerProgressHandler(lambda stages, inflight_tasks, **_: print("running", inflight_tasks, flush=True))
    spark.sql("SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(0, 8, 1, 8)").collect()
"""


@pytest.mark.large
@pytest.mark.spark
def test_the_next_job_ends_what_a_killed_client_left(folder: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server itself would give it up after a while, and until then its tasks would hold the cores."""
    monkeypatch.setitem(CONF, "spark.connect.execute.manager.detachedTimeout", "600s")
    stop(folder)
    start(folder, Options("local[2]"))
    with subprocess.Popen([sys.executable, "-c", _KILLED, DATABASE], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        while (line := client.stdout.readline().strip()) != "running 2":
            assert client.poll() is None, line
        client.kill()
    with LocalServerRunner(SparkSettings(), DATABASE, print)._on_server() as runner:
        assert isinstance(runner, SparkConnectRunner)
        with runner._driven({}) as (spark, _):
            assert spark.range(0, 3, 1, 1).count() == 3  # waits until a core is free
    stop(folder)


@pytest.mark.long
@pytest.mark.spark
def test_a_long_job_leaves_a_core_to_the_next_one_as_soon_as_one_is_free(folder: ServerFolder) -> None:
    server, _ = start(folder, Options())
    address = f"{server.address}/;token={server.token}"
    long, short = (ConnectSession.builder.remote(address).create() for _ in range(2))
    runs = threading.Event()
    handler: Any = lambda inflight_tasks, **_: runs.set() if inflight_tasks else None  # noqa: E731
    long.registerProgressHandler(handler)
    query = "SELECT reflect('java.lang.Thread', 'sleep', bigint(500)) AS x FROM range(0, 400, 1, 400)"
    running = threading.Thread(target=interrupted, args=(long.sql(query).collect,))
    running.start()
    assert runs.wait(SECONDS)
    assert short.sql("SELECT id + 1 AS n FROM range(0, 3, 1, 2)").agg({"n": "sum"}).collect()[0][0] == 6
    assert running.is_alive()
    long.interruptAll()
    running.join(SECONDS)
    short.stop()
    long.stop()


def test_a_jar_that_is_missing_is_told_before_anything_starts(idle_folder: ServerFolder) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no jar /.*/nothing\.jar; the Spark server was not started"):
        start(idle_folder, Options(jars="nothing.jar"))
    assert idle_folder.process() is None


_RUNAWAY = """
import threading, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()  # of SPARK_REMOTE
query = "SELECT max(sha2(CAST(id AS STRING), 512)) FROM range({})"
spark.sql(query.format(100)).collect()  # while classes are loaded, a task would still hear that it is cancelled
thread = threading.Thread(target=lambda: spark.sql(query.format(20_000_000_000)).collect(), daemon=True)
thread.start()
time.sleep(10)
spark.interruptAll()
time.sleep(3600)
"""


@pytest.mark.long
@pytest.mark.spark
def test_one_whose_cores_are_held_by_a_cancelled_query_is_ended(folder: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONF, "spark.task.reaper.killTimeout", "5s")
    stop(folder)
    server, _ = start(folder, Options(idle_seconds=None))
    process = process_of(folder)
    environ = {**os.environ, "SPARK_REMOTE": f"{server.address}/;token={server.token}"}
    with subprocess.Popen([sys.executable, "-c", _RUNAWAY], env=environ) as client:
        until(lambda: not process.is_alive)
        client.kill()
    assert running(folder) is None
    stop(folder)


def interrupted(compute: Callable[[], object]) -> None:
    with pytest.raises(PySparkException, match="OPERATION_CANCELED"):
        compute()


_LEFT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()  # of SPARK_REMOTE
spark.registerProgressHandler(lambda stages, inflight_tasks, **_: print(inflight_tasks, flush=True))
spark.sql("SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(1)").collect()
"""


@pytest.mark.long
@pytest.mark.spark
def test_the_query_of_a_client_that_was_killed_does_not_stay(folder: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONF, "spark.connect.execute.manager.detachedTimeout", "5s")
    stop(folder)
    server, _ = start(folder, Options("local[1]"))
    address = f"{server.address}/;token={server.token}"
    with subprocess.Popen(
        [sys.executable, "-c", _LEFT], env={**os.environ, "SPARK_REMOTE": address}, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        while client.stdout.readline().strip() != "1":
            assert client.poll() is None
        client.kill()
    other = ConnectSession.builder.remote(address).create()
    assert other.sql("SELECT id FROM range(0, 3, 1, 1)").count() == 3  # waits until the core is free
    other.stop()
    stop(folder)


def test_a_process_id_that_another_process_got_is_not_the_server(idle_folder: ServerFolder) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        line = Path(f"/proc/{stranger.pid}/stat").read_text()
        (idle_folder.path / "process").write_text(line.replace(started(stranger.pid) or "", "17"))
        idle_folder.write(Server(1, "token", Options(), datetime.now(UTC)))
        assert status(idle_folder).state is State.DIED
        assert not stop(idle_folder)
        Process(stranger.pid, "17").signal(signal.SIGKILL)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"port": "x"}', "1 (java) S"])
def test_files_full_of_garbage_are_no_server(idle_folder: ServerFolder, garbage: str) -> None:
    for name in ("server.json", "process", "watcher", "used"):
        (idle_folder.path / name).write_text(garbage)
    assert status(idle_folder).state is State.STOPPED
    assert running(idle_folder) is None
    assert not stop(idle_folder)


def test_whoever_waits_for_another_start_does_not_wait_for_ever(idle_folder: ServerFolder) -> None:
    with idle_folder.locked(1), pytest.raises(ConflictError), idle_folder.locked(0.2):
        pass


@pytest.mark.spark
def test_a_server_that_cannot_start_says_why_and_leaves_nothing(idle_folder: ServerFolder) -> None:
    with pytest.raises(JobFailedError, match="did not start"):
        start(idle_folder, Options(driver_memory="plenty"))
    assert status(idle_folder).state is State.STOPPED
    assert idle_folder.process() is None


def test_users_and_states_do_not_meet(idle_folder: ServerFolder) -> None:
    assert ServerFolder.of("one").path != idle_folder.path
    assert str(os.getuid()) in idle_folder.path.parent.name
