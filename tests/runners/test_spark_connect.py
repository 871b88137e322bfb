"""A server that is not as it should be, and what of a session others notice."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.session import SparkSession as ConnectSession

from airflow_dynamic_tables.clients.files import exists, read_text
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner
from tests.support.connect_server import ConnectServer, running_connect_server
from tests.support.jobs import make_plan

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")]

Plan = Callable[..., RefreshPlan]

SLEEPS = "SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(1)"
PATIENCE = 3.0


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return partial(make_plan, tmp_path)


@pytest.fixture
def other(connect_server: ConnectServer) -> Iterator[SparkSession]:
    """A session of somebody else."""
    session = ConnectSession.builder.remote(connect_server.url).create()
    yield cast(SparkSession, session)
    session.stop()


class Listening(SparkConnectRunner):
    """A runner, and what it said."""

    def __init__(self, url: str, patience: float, conf: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        super().__init__(SparkSettings(conf=conf), url, self.lines.append, patience)


def runner(url: str, patience: float = 60, *, conf: Mapping[str, str] = MappingProxyType({})) -> Listening:
    return Listening(url, patience, conf)


def result_of(plan: RefreshPlan) -> RefreshResult:
    return RefreshResult.from_json(read_text(plan.result_location))


def started(running: Listening, plan: RefreshPlan) -> tuple[threading.Thread, list[Exception]]:
    """A job whose tasks run already, in a thread, and what it will have raised."""
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


@pytest.mark.parametrize("address", ["host:1/;token=t0p-s3cret;broken", "host:1/t0p-s3cret", "host:t0p-s3cret"])
def test_an_address_that_is_none_is_not_repeated(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is none; write sc://host:port\.$") as caught:
        runner(f"sc://{address}").run(make_plan(Path("/nowhere"), "SELECT 1"), {})
    assert "t0p" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_proxy_is_not_for_this_machine(connect_server: ConnectServer, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    one = plan("SELECT 1 AS x")
    runner(connect_server.url, patience=20).run(one, {})
    assert result_of(one).rows == 1


def clients() -> int:
    gc.collect()
    return sum(type(each) is SparkConnectClient for each in gc.get_objects())


def test_nothing_is_kept_of_a_job_that_is_over(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    """A loop runs thousands of them in one process."""
    (tmp_path / "a.csv").write_text("1\n")
    before = clients()
    source = SourceBinding("raw.o", "o", "csv", "v1", (f"file://{tmp_path}/a.csv",), schema="n BIGINT")
    runner(connect_server.url).run(plan("SELECT n FROM o", source), {})
    assert clients() <= before


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_is_not_there_or_never_answers(plan: Plan, listens: bool) -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        begun = time.monotonic()
        with pytest.raises(JobFailedError, match=r"did not answer within 1 seconds \(without TLS\); check that it runs"):
            runner(f"sc://localhost:{silent.getsockname()[1]}/;token=x", 1).run(plan("SELECT 1 AS x"), {})
        assert time.monotonic() - begun < 30


def test_tls_to_a_port_without_it(connect_server: ConnectServer, plan: Plan) -> None:
    with pytest.raises(JobFailedError, match=r"did not answer within 1 seconds \(with TLS\); .*use_ssl"):
        runner(f"{connect_server.url};use_ssl=true", 1).run(plan("SELECT 1 AS x"), {})


def test_settings_that_only_a_start_can_give(connect_server: ConnectServer, plan: Plan) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.conf\.spark\.sql\.warehouse\.dir .*CANNOT_MODIFY_STATIC_CONFIG"):
        runner(connect_server.url, conf={"spark.sql.warehouse.dir": "/x"}).run(plan("SELECT 1 AS x"), {})
    with pytest.raises(ConfigurationError, match=r"spark\.conf\.spark\.executor\.memory cannot be set in a session"):
        runner(connect_server.url, conf={"spark.executor.memory": "1g"})
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


def test_python_functions_of_catalogs(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "functions_over_connect.py").write_text("def twice(n):\n    return 2 * n\n")
    uri = f"file://{tmp_path}/functions_over_connect.py"
    function = FunctionBinding("lake.f", "f_0", "python", "functions_over_connect:twice", "BIGINT", py_files=(uri,))
    planned = plan("SELECT f_0(id) AS n FROM range(3) WHERE f_0(id) > 0", functions=(function,))
    runner(connect_server.url).run(planned, {})
    assert result_of(planned).rows == 2


def test_a_password_is_told_to_the_server_alone(
    connect_server: ConnectServer, plan: Plan, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"url": "jdbc:nothing://x", "dbtable": "t", "driver": "no.such.Driver", "user": "u"}
    source = SourceBinding("pg.t", "t", "jdbc", "v1", (), options=options, password_variable="P_W", has_files=False)
    planned = plan("SELECT * FROM t", source)
    with pytest.raises(JobFailedError) as caught:
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
