"""The way to a server: addresses, proxies, TLS, and servers that do not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner
from tests.support.connect_server import ConnectServer
from tests.support.jobs import make_plan
from tests.support.tls import self_signed, tls_proxy

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")]

Plan = Callable[..., RefreshPlan]


def runner(url: str, patience: float = 60) -> SparkConnectRunner:
    return SparkConnectRunner(SparkSettings(), url, patience=patience)


def result_of(plan: RefreshPlan) -> RefreshResult:
    return RefreshResult.from_json(read_text(plan.result_location))


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


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_is_not_there_or_never_answers(plan: Plan, listens: bool) -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        begun = time.monotonic()
        with pytest.raises(JobFailedError, match=r"did not answer within 1 seconds \(without TLS\); check that it runs"):
            runner(f"sc://localhost:{silent.getsockname()[1]}/;token=x", 1).run(plan("SELECT 1 AS x"), {})
        assert time.monotonic() - begun < 120


def test_tls_to_a_port_without_it(connect_server: ConnectServer, plan: Plan) -> None:
    with pytest.raises(JobFailedError, match=r"did not answer within 1 seconds \(with TLS\); .*use_ssl"):
        runner(f"{connect_server.url};use_ssl=true", 1).run(plan("SELECT 1 AS x"), {})


_OVER_TLS = """
import os, sys
from pathlib import Path
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.runners.spark_connect import SparkConnectRunner
plan = RefreshPlan.from_json(Path(sys.argv[1]).read_text())
SparkConnectRunner(SparkSettings(), os.environ["ADDRESS"], patience=20).run(plan, {})
"""


def test_tls_is_for_a_certificate_that_is_known_here(connect_server: ConnectServer, plan: Plan, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    planned = plan("SELECT 1 AS x")
    (tmp_path / "plan.json").write_text(planned.to_json())
    with tls_proxy(certificate, connect_server.port) as port:
        url = f"sc://127.0.0.1:{port}/;token={connect_server.token};use_ssl=true"
        with pytest.raises(JobFailedError, match=r"\(with TLS\); .*GRPC_DEFAULT_SSL.*CERTIFICATE_VERIFY_FAILED") as caught:
            runner(url, 1).run(planned, {})
        assert connect_server.token not in str(caught.value)
        # gRPC reads what it trusts once in a process.
        environ = {**os.environ, "ADDRESS": url, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate.file)}
        subprocess.run([sys.executable, "-c", _OVER_TLS, str(tmp_path / "plan.json")], env=environ, check=True)
    assert result_of(planned).rows == 1
