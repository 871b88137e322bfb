"""A server that is not as it should be, and what of a session others notice."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.session import SparkSession as ConnectSession

from airflow_dynamic_tables.clients.files import exists, read_text
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner, WorkerDriver, end_session, folder_for_modules
from tests.support.connect_server import ConnectServer, running_connect_server
from tests.support.spark_version import PINNED, SPARK_VERSION

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")]

Plan = Callable[..., RefreshPlan]

SLEEPS = "SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(1)"
HOLDS = "SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(0, 2, 1, 2)"
COUNTS = "SELECT id + 1 AS n FROM range(0, 3, 1, 1)"
PATIENCE = 3.0


@pytest.fixture
def other(connect_server: ConnectServer) -> Iterator[SparkSession]:
    session = ConnectSession.builder.remote(connect_server.url).create()
    yield cast(SparkSession, session)
    session.stop()


class Listening(SparkConnectRunner):
    def __init__(self, url: str, patience: float, conf: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        super().__init__(SparkSettings(conf=conf), url, self.lines.append, patience)


def runner(url: str, patience: float = 60, *, conf: Mapping[str, str] = MappingProxyType({})) -> Listening:
    return Listening(url, patience, conf)


def interrupted(compute: Callable[[], object]) -> None:
    with pytest.raises(PySparkException, match="OPERATION_CANCELED"):
        compute()


def result_of(plan: RefreshPlan) -> RefreshResult:
    return RefreshResult.from_json(read_text(plan.result_location))


def started(running: Listening, plan: RefreshPlan) -> tuple[threading.Thread, list[Exception]]:
    raised: list[Exception] = []

    def run() -> None:
        try:
            running.run(plan, {})
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + 120
    while not any("tasks" in line for line in running.lines):
        assert thread.is_alive(), raised
        assert time.monotonic() < until
        time.sleep(0.05)
    return thread, raised


def test_a_wrong_token_is_refused_and_not_repeated(connect_server: ConnectServer, plan: Plan) -> None:
    url = connect_server.url.replace(connect_server.token, "Wr0ng+T0ken")
    with pytest.raises(ConfigurationError, match=r"localhost:\d+ refuses the token; check the password") as caught:
        runner(url).run(plan("SELECT 1 AS x"), {})
    assert "Wr0ng" not in str(caught.value)


def clients() -> int:
    gc.collect()
    return sum(type(each) is SparkConnectClient for each in gc.get_objects())


@pytest.mark.large
def test_nothing_is_kept_of_a_job_that_is_over(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    """A loop runs thousands of them in one process."""
    (tmp_path / "a.csv").write_text("1\n")
    before = clients()
    source = SourceBinding("raw.o", "o", "csv", "v1", (f"file://{tmp_path}/a.csv",), schema="n BIGINT")
    runner(connect_server.url).run(plan("SELECT n FROM o", source), {})
    assert clients() <= before


def test_a_job_after_the_session_of_a_dead_client_was_ended(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    end_session(f"{connect_server.url};session_id={uuid4()}")
    source = SourceBinding("raw.o", "o", "csv", "v1", (f"file://{tmp_path}/a.csv",), schema="n BIGINT")
    planned = plan("SELECT n FROM o", source)
    runner(connect_server.url).run(planned, {})
    assert result_of(planned).rows == 1


def test_settings_that_only_a_start_can_give(connect_server: ConnectServer, plan: Plan) -> None:
    refused = "CANNOT_MODIFY_STATIC_CONFIG" if SPARK_VERSION == PINNED else "CANNOT_MODIFY_(STATIC_)?CONFIG"
    with pytest.raises(ConfigurationError, match=rf"spark\.conf\.spark\.sql\.warehouse\.dir .*{refused}"):
        runner(connect_server.url, conf={"spark.sql.warehouse.dir": "/x"}).run(plan("SELECT 1 AS x"), {})
    with pytest.raises(ConfigurationError, match=r"spark\.conf\.spark\.executor\.memory cannot be set in a session"):
        runner(connect_server.url, conf={"spark.executor.memory": "1g"})
    with pytest.raises(
        ConfigurationError, match=r"spark\.jars of the definition names /no/x\.jar, which this worker cannot read"
    ):
        SparkConnectRunner(SparkSettings(jars="/no/x.jar"), connect_server.url).run(plan("SELECT 1 AS x"), {})
    with pytest.raises(ConfigurationError, match=r"spark\.packages is for spark-submit, and connection 'c' leads to"):
        SparkConnectRunner(SparkSettings(conn_id="c", packages="a:b:1"), connect_server.url)


def test_sessions_do_not_meet(connect_server: ConnectServer, plan: Plan, other: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    other.range(99).createOrReplaceTempView("o")
    other.conf.set("spark.sql.ansi.enabled", "false")
    source = SourceBinding("raw.o", "o", "csv", "v1", (f"file://{tmp_path}/a.csv",), schema="n BIGINT")
    planned = plan("SELECT n FROM o", source)
    runner(connect_server.url, conf={"spark.sql.shuffle.partitions": "7"}).run(planned, {})
    assert result_of(planned).rows == 2
    assert other.table("o").count() == 99
    assert other.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


@pytest.mark.large
def test_two_jobs_at_once_keep_their_settings_views_and_functions(
    connect_server: ConnectServer, plan: Plan, tmp_path: Path
) -> None:
    plans = []
    for number, zone in enumerate(("Asia/Tokyo", "America/New_York")):
        (tmp_path / f"{number}.csv").write_text(f"{number}\n")
        (tmp_path / str(number)).mkdir()
        module = tmp_path / str(number) / f"named_{number}.py"
        module.write_text(f"def name(n):\n    return '{number}'\n")
        source = SourceBinding("raw.o", "o", "csv", "v1", (f"file://{tmp_path}/{number}.csv",), schema="n BIGINT")
        function = FunctionBinding("lake.f", "f_0", "python", f"named_{number}:name", "STRING", py_files=(module.as_uri(),))
        query = "SELECT /*+ REPARTITION(2) */ n, f_0(n) AS f, current_timezone() AS zone, try_divide(n, 0) AS d FROM o"
        fields = {"stage": f"file://{tmp_path}/stage/{number}", "functions": (function,), "timezone": zone}
        plans.append(plan(query, source, **fields))
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda planned: runner(connect_server.url).run(planned, {}), plans))
    seen = [
        pq.read_table(file.path.removeprefix("file://"), partitioning=None).to_pylist()
        for planned in plans
        for file in result_of(planned).files
    ]
    assert seen == [
        [{"n": 0, "f": "0", "zone": "Asia/Tokyo", "d": None}],
        [{"n": 1, "f": "1", "zone": "America/New_York", "d": None}],
    ]


def test_two_threads_add_python_files_at_once(connect_server: ConnectServer, tmp_path: Path) -> None:
    """PySpark goes through all folders that Python remembers as missing, and fails when another thread forgets them first."""
    modules = [tmp_path / f"module_{number}.py" for number in range(5)]
    for module in modules:
        module.touch()

    # While both wait: who adds to a dictionary beside somebody who copies it breaks Python's own copy.
    missing = threading.Barrier(
        2, lambda: sys.path_importer_cache.update(dict.fromkeys((f"/missing/{each}" for each in range(20_000)), None)), timeout=60
    )

    def add(number: int) -> None:
        session = cast(SparkSession, ConnectSession.builder.remote(connect_server.url).create())
        try:
            (tmp_path / str(number)).mkdir()
            driver = WorkerDriver(session, tmp_path / str(number), {}, print)
            for module in modules:
                missing.wait()
                driver.add_python_file(module.as_uri())
        finally:
            session.stop()

    path = sys.path.copy()
    often = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(add, range(2))) == [None, None]
    finally:
        sys.setswitchinterval(often)
        sys.path[:] = path


@pytest.mark.large
def test_a_server_whose_cores_others_hold_is_named(
    connect_server: ConnectServer, plan: Plan, other: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_dynamic_tables.runners.spark_connect._LONGEST_WAIT_FOR_CORES", 1.5)
    held = threading.Event()
    handler: Any = lambda inflight_tasks, **_: held.set() if inflight_tasks == 2 else None  # noqa: E731
    other.registerProgressHandler(handler)
    holding = threading.Thread(target=interrupted, args=(other.sql(HOLDS).collect,))
    holding.start()
    assert held.wait(60)
    waiting = runner(connect_server.url, PATIENCE)
    try:
        with pytest.raises(JobFailedError, match=r"localhost:\d+ gave this job no core for 1\.5 seconds: other queries"):
            waiting.run(plan(COUNTS), {})
    finally:
        other.interruptAll()
        holding.join(60)
    assert any(line.startswith("Spark: no task of this job runs since") for line in waiting.lines)


def test_stop_ends_one_job_and_disturbs_nobody(connect_server: ConnectServer, plan: Plan, other: SparkSession) -> None:
    other.range(5).createOrReplaceTempView("mine")
    running = runner(connect_server.url)
    planned = plan(SLEEPS)
    thread, raised = started(running, planned)
    running.stop()
    thread.join(60)
    running.stop()
    assert [str(error) for error in raised] == ["The job was stopped."]
    assert not exists(planned.result_location)
    assert other.table("mine").count() == 5
    again = plan("SELECT 1 AS x", stage=f"{planned.stage}-2")
    running.run(again, {})
    assert result_of(again).rows == 1


@pytest.mark.large
def test_python_functions_of_catalogs_are_those_of_their_files(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    for factor in (2, 3):  # the file was changed between two refreshes
        (tmp_path / "functions_over_connect.py").write_text(f"def times(n):\n    return {factor} * n\n")
        uri = f"file://{tmp_path}/functions_over_connect.py"
        function = FunctionBinding("lake.f", "f_0", "python", "functions_over_connect:times", "BIGINT", py_files=(uri,))
        query = "SELECT f_0(id) AS n FROM range(3) WHERE f_0(id) > 0"
        planned = plan(query, functions=(function,), stage=f"file://{tmp_path}/stage/{factor}")
        runner(connect_server.url).run(planned, {})
        files = [file.path.removeprefix("file://") for file in result_of(planned).files]
        assert sorted(n for file in files for n in pq.read_table(file).column("n").to_pylist()) == [factor, 2 * factor]


def test_a_password_is_told_to_the_server_alone(
    connect_server: ConnectServer, plan: Plan, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"url": "jdbc:nothing://x", "dbtable": "t", "driver": "no.such.Driver", "user": "u"}
    source = SourceBinding("pg.t", "t", "jdbc", "v1", (), options=options, password_variable="P_W", has_files=False)
    planned = plan("SELECT * FROM t", source)
    with pytest.raises(
        JobFailedError, match=r"pg\.t needs the JDBC driver no\.such\.Driver; name its jar in the definition"
    ) as caught:
        runner(connect_server.url).run(planned, {"P_W": "h1dden-w0rd"})
    out = "".join(capfd.readouterr())
    for text in (str(caught.value), caplog.text, out, planned.to_json()):
        assert "h1dden-w0rd" not in text
        assert connect_server.token not in text


@pytest.mark.long
@pytest.mark.parametrize("dies", [True, False])
def test_a_server_that_dies_or_hangs_fails_the_job_and_the_next_one_works(plan: Plan, dies: bool) -> None:
    with running_connect_server() as server:
        planned = plan(SLEEPS)
        thread, raised = started(runner(server.url, PATIENCE), planned)
        server.kill() if dies else os.killpg(server.process.pid, signal.SIGSTOP)
        thread.join(60)
        assert [type(error) for error in raised] == [JobFailedError]
    with running_connect_server() as server:
        again = plan("SELECT 1 AS x", stage=f"{planned.stage}-2")
        runner(server.url, PATIENCE).run(again, {})
        assert result_of(again).rows == 1


class Lazy(ModuleType):
    """A module that imports another one when it is asked for what it does not have, as a thread might at that moment."""

    def __getattr__(self, name: str) -> object:
        sys.modules[f"{self.__name__}.{name}"] = ModuleType(name)
        raise AttributeError(name)


def test_what_was_imported_is_forgotten_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setitem(sys.modules, "lazy_one", Lazy("lazy_one"))
    with folder_for_modules() as folder:
        (folder / "brought_by_a_job.py").write_text("")
        sys.path.insert(0, str(folder))
        __import__("brought_by_a_job")
        sys.path.append("/of another thread")
    assert "brought_by_a_job" not in sys.modules
    assert "/of another thread" in sys.path
    assert not any(str(folder) in path for path in sys.path)
    for name in [name for name in sys.modules if name.startswith("lazy_one.")]:
        del sys.modules[name]
