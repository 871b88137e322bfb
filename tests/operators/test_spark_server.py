"""A Spark connection that leads to a server: what is asked of the worker, and a refresh through the operator."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.hooks.spark import connect_url
from airflow_dynamic_tables.ledger.base import RefreshState
from tests.operators.test_dynamic_table_refresh import context, operator_of
from tests.support.connect_server import ConnectServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    return tmp_path


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SERVER", json.dumps({"conn_type": "spark_connect", **fields}))


@pytest.mark.spark
def test_a_refresh_needs_no_java(home: Path, monkeypatch: pytest.MonkeyPatch, connect_server: ConnectServer) -> None:
    connect(monkeypatch, host="sc://localhost", port=connect_server.port, password=connect_server.token)
    operator = operator_of(home, "parent", "server")
    report = operator.execute(context())
    assert (report["version"], report["rows"]) == (1, 1)
    assert operator.spark_pages is not None
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__SPARK_HISTORY_SERVER", "https://history.example")
    assert operator.spark_pages.afterwards().startswith("https://history.example/history/local-")
    left = [path for path in home.rglob("*") if path.is_file() and connect_server.token.encode() in path.read_bytes()]
    assert left == []


@pytest.mark.spark
def test_a_task_that_is_stopped_ends_its_query_and_settles_its_stage(
    home: Path, monkeypatch: pytest.MonkeyPatch, connect_server: ConnectServer
) -> None:
    connect(monkeypatch, host="sc://localhost", port=connect_server.port, password=connect_server.token)
    operator = operator_of(home, "parent", "server")
    sleeps = "SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(1)"
    operator.table = replace(operator.table, query=sleeps, expanded_query=sleeps)
    said = threading.Event()
    monkeypatch.setattr(operator, "hear", lambda line: said.set() if "tasks" in line else None)

    def stop() -> None:
        assert said.wait(120)
        operator.on_kill()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(AirflowException, match=r"The job was stopped\."):
        operator.execute(context())
    stopping.join()
    with operator.catalog_hook().get_conn() as workspace:
        (ended,) = workspace.ledger.list_refreshes()
        assert ended.state in (RefreshState.ABORTED, RefreshState.FAILED)
        assert workspace.ledger.list_stages() == []
    assert not list(home.rglob("token"))


def test_settings_of_spark_submit_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="localhost", port=1)
    operator = operator_of(home, "parent", "server", executor_memory="2g")
    with pytest.raises(AirflowFailException, match=r"spark\.executor_memory is for spark-submit, and connection 'server'"):
        operator.execute(context())


def test_the_address_is_that_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="spark.example", port=15002, login="jane", password="a/b", extra={"use_ssl": True})
    url = connect_url(BaseHook.get_connection("server"))
    assert url == "sc://spark.example:15002/;user_id=jane;token=a/b;use_ssl=True"


@pytest.mark.parametrize(("host", "words"), [("", "has no host"), ("sc://host/path;token=t0p", "is no address")])
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, host: str, words: str) -> None:
    connect(monkeypatch, host=host)
    with pytest.raises(ConfigurationError, match=words) as caught:
        connect_url(BaseHook.get_connection("server"))
    assert "t0p" not in str(caught.value)
