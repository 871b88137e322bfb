"""Waiting for parents: serialized, polled, ended by a commit or by the deadline."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import in_time, parents_of
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from airflow_dynamic_tables.triggers.upstream import UpstreamTrigger, has_given_up, upstream_to_text
from tests.support.airflow_runs import AirflowRuns
from tests.support.pyarrow_job import write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)
AN_HOUR = timedelta(hours=1)


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DynamicTable:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables:\n- {name: parent, freshness: 1 day, query: SELECT 1 AS x}\n")
    (table,) = load_definitions(path).tables.values()
    return table


def refresh(parent: DynamicTable, schedule_time: datetime) -> None:
    with open_workspace(embedded_settings(os.environ)) as workspace:
        run(workspace, RefreshRequest(parent, {}, schedule_time, f"token-{schedule_time:%Y%m%d}", "test"), write_numbers)


def trigger(parent: DynamicTable, deadline: datetime, max_lag: timedelta | None = None, **options: Any) -> UpstreamTrigger:
    child = load_definitions(_with_child(parent.path)).table("child")
    assert child is not None
    child = replace(child, max_lag={} if max_lag is None else {str(parent.identifier): max_lag})
    parents = in_time(parents_of(child, Definitions({parent.identifier: parent})), child, TICK)
    return UpstreamTrigger(
        upstream_to_text(parents), TICK.isoformat(), deadline.isoformat(), **{"conn_id": "dynamic_tables_default", **options}
    )


def _with_child(path: Path) -> Path:
    path.write_text(path.read_text() + "- {name: child, freshness: 1 day, query: SELECT x FROM parent}\n")
    return path


async def fired(waiting: UpstreamTrigger) -> dict[str, Any]:
    return dict((await anext(waiting.run())).payload)


async def said_first(waiting: UpstreamTrigger, capsys: pytest.CaptureFixture[str]) -> str:
    """What it says while it waits: its first line, and what comes in the next second."""
    firing = asyncio.ensure_future(fired(waiting))
    said = ""
    while "Waiting" not in said:
        await asyncio.wait([firing], timeout=0.05)
        said += capsys.readouterr().out
        assert not firing.done(), said
    await asyncio.wait([firing], timeout=1)
    firing.cancel()
    return said + capsys.readouterr().out


def test_the_triggerer_can_rebuild_it(parent: DynamicTable) -> None:
    waiting = trigger(parent, TICK, timedelta(minutes=90), poll_interval=5)
    path, options = waiting.serialize()
    rebuilt = import_string(path)(**options)
    assert rebuilt.serialize() == waiting.serialize()
    texts = ["default.default.parent", "iceberg", "0 0 * * *", "UTC", "1 day", TICK.isoformat(), parent.workflow_id]
    assert options["parents"] == [[*texts, "5400.0"]]


def test_it_fires_at_its_first_look_when_the_parent_is_fresh(parent: DynamicTable) -> None:
    refresh(parent, TICK)
    deadline = datetime.now(UTC) + AN_HOUR
    begin = time.monotonic()
    assert asyncio.run(fired(trigger(parent, deadline, poll_interval=0.5))) == {"deadline": deadline.isoformat()}
    assert time.monotonic() - begin >= 0.5, "Airflow fails a task that is back before the scheduler knows that it was gone"


@pytest.mark.usefixtures("parent")
def test_it_waits_for_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders = TableIdentifier("default", "raw", "orders")
    awaited = [AwaitedData(text, orders, AwaitedRows(3, "parquet", str(tmp_path / "orders"))) for text in ("", "ds=1")]
    texts = json.loads(json.dumps(upstream_to_text(awaited)))
    (tmp_path / "orders" / "ds=1").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "orders" / "a.parquet")
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "orders" / "ds=1" / "a.parquet")
    deadline = datetime.now(UTC) + AN_HOUR
    waiting = UpstreamTrigger(texts, TICK.isoformat(), deadline.isoformat(), conn_id="dynamic_tables_default", poll_interval=0.1)
    assert f": partition ds=1 of {orders} has 2 of 3 rows." in asyncio.run(said_first(waiting, capsys))


def test_it_waits_for_the_parents_commit(parent: DynamicTable) -> None:
    refresh(parent, TICK - timedelta(days=1))

    async def commit_while_it_waits() -> tuple[bool, dict[str, Any]]:
        task = asyncio.ensure_future(fired(trigger(parent, datetime.now(UTC) + AN_HOUR, poll_interval=0.05)))
        await asyncio.wait([task], timeout=1)
        waited = not task.done()
        await asyncio.to_thread(refresh, parent, TICK)
        return waited, await asyncio.wait_for(task, timeout=120)

    waited, event = asyncio.run(commit_while_it_waits())
    assert waited
    assert "deadline" in event


def test_a_day_of_looks_is_one_line_of_log(parent: DynamicTable, capsys: pytest.CaptureFixture[str]) -> None:
    deadline = datetime.now(UTC) + AN_HOUR
    said = asyncio.run(said_first(trigger(parent, deadline, poll_interval=0.05), capsys))
    (line,) = (line for line in said.splitlines() if "Waiting" in line)
    assert f"Waiting, at most until {deadline.isoformat()}: default.default.parent must be fresh up to 2024-01-02" in line


def test_it_ends_at_the_deadline(parent: DynamicTable) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=1)
    assert asyncio.run(fired(trigger(parent, deadline, poll_interval=3600))) == {"deadline": deadline.isoformat()}
    assert datetime.now(UTC) >= deadline


def test_what_waiting_cannot_cure_is_left_to_the_task(parent: DynamicTable) -> None:
    waiting = trigger(parent, datetime.now(UTC) + AN_HOUR, conn_id="nowhere", poll_interval=0.05)
    assert "deadline" in asyncio.run(fired(waiting))


def test_a_catalog_that_is_down_is_waited_for(parent: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    refresh(parent, TICK)
    monkeypatch.setenv("AIRFLOW_CONN_DOWN", "dynamic-tables://127.0.0.1:1/state")
    waiting = trigger(parent, datetime.now(UTC) + timedelta(seconds=0.5), conn_id="down", poll_interval=0.1)
    event = asyncio.run(asyncio.wait_for(fired(waiting), timeout=120))
    assert datetime.now(UTC) >= datetime.fromisoformat(event["deadline"])


def test_it_ends_when_the_parent_has_failed_for_good(
    parent: DynamicTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    airflow = AirflowRuns()
    airflow.install(monkeypatch)
    retried, failed = [(parent.identifier.workflow_id, TICK, state) for state in ("running", "failed")]
    airflow.runs = [retried]
    waiting = trigger(parent, datetime.now(UTC) + AN_HOUR, poll_interval=0.05)

    async def fail_while_it_waits() -> tuple[bool, dict[str, Any]]:
        task = asyncio.ensure_future(fired(waiting))
        await asyncio.wait([task], timeout=1)
        waited = not task.done()
        airflow.runs = [failed]
        return waited, await asyncio.wait_for(task, timeout=120)

    waited, event = asyncio.run(fail_while_it_waits())
    assert waited, "another try may do"
    assert event == {"deadline": waiting.deadline}
    told = f"default.default.parent must be fresh up to {TICK.isoformat()} but its run for {TICK.isoformat()} failed"
    assert f"Waiting no longer: {told}, and no other comes in time." in capsys.readouterr().out


def test_a_trigger_of_an_earlier_release_waits_as_it_did(parent: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = AirflowRuns()
    airflow.install(monkeypatch)
    airflow.runs = [(parent.identifier.workflow_id, TICK, "failed")]
    path, options = trigger(parent, datetime.now(UTC) + timedelta(seconds=1), poll_interval=0.05).serialize()
    options["parents"] = [texts[:4] for texts in options["parents"]]
    asyncio.run(fired(import_string(path)(**options)))
    assert datetime.now(UTC) >= datetime.fromisoformat(options["deadline"])


PARENT = TableIdentifier("lake", "sales", "parent")
DAG = "dynamic_table__lake__sales__parent"
FAILED = (DAG, TICK, "failed")


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> AirflowRuns:
    found = AirflowRuns()
    found.install(monkeypatch)
    return found


@pytest.mark.parametrize(
    ("runs", "given_up"),
    [
        pytest.param([FAILED], True, id="its last try failed"),
        pytest.param([FAILED, (DAG, TICK - timedelta(days=1), "success")], True, id="the tick before was fine"),
        pytest.param([FAILED, ("dynamic_table__lake__sales__other", TICK, "running")], True, id="another table's runs"),
        pytest.param([(DAG, TICK, "running")], False, id="it has tries left, or asks about its quarantine"),
        pytest.param([(DAG, TICK, "queued")], False, id="cleared"),
        pytest.param([FAILED, (DAG, None, "running")], False, id="somebody refreshes it by hand"),
        pytest.param([FAILED, (DAG, TICK + timedelta(days=1), "queued")], False, id="a later run waits for its turn"),
        pytest.param([(DAG, TICK, "success")], False, id="marked success, or skipped"),
        pytest.param([(DAG, TICK - timedelta(days=1), "failed")], False, id="only the tick before failed"),
        pytest.param([(DAG, None, "failed")], False, id="only a run by hand failed"),
        pytest.param([], False, id="paused, or no DAG of this name"),
    ],
)
def test_a_parent_has_given_up_when_its_run_failed_and_nothing_of_it_is_under_way(
    airflow: AirflowRuns, runs: list[tuple[str, datetime | None, str]], given_up: bool
) -> None:
    airflow.runs = runs
    assert has_given_up(DAG, TICK.astimezone(ZoneInfo("Asia/Kolkata"))) is given_up


def test_an_airflow_that_does_not_answer_is_asked_again(airflow: AirflowRuns, caplog: pytest.LogCaptureFixture) -> None:
    airflow.runs = [FAILED]
    airflow.error = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "gone"}))
    assert not has_given_up(DAG, TICK)
    assert f"Airflow does not say how the runs of {DAG} stand: API_SERVER_ERROR" in caplog.text
    airflow.error = None
    assert has_given_up(DAG, TICK)


def test_outside_of_airflow_nobody_is_asked() -> None:
    assert not has_given_up(DAG, TICK)
