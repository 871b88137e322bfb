"""The task that asks what becomes of a refresh in quarantine, around the question itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import JobFailedError, QuarantinedError
from airflow_dynamic_tables.operators import decide
from airflow_dynamic_tables.operators.decide import ABORT, PUBLISH, DecideOperator
from airflow_dynamic_tables.operators.reconcilers import abort_refresh
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.quarantine import publish, reject
from airflow_dynamic_tables.triggers.quarantine import QuarantineTrigger
from tests.support.pyarrow_job import write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)
TABLE = """
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x, expectations: [{row_count: {min: 2}}]}
"""
ASSET = Asset("dynamic-table://default/default/numbers")
ANSWERED = {"params_input": {}, "responded_by_user": {"id": "1", "name": "jane"}}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as opened:
        yield opened


@pytest.fixture
def table(tmp_path: Path) -> DynamicTable:
    path = tmp_path / "tables.yaml"
    path.write_text(TABLE)
    (found,) = load_definitions(path).tables.values()
    return found


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> list[AssetEventResponse]:
    events: list[AssetEventResponse] = []
    comms = SimpleNamespace(send=lambda msg: AssetEventsResult(asset_events=[one for one in events if one.asset.uri == msg.uri]))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    return events


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    questions: list[dict[str, Any]] = []
    monkeypatch.setattr(decide, "upsert_hitl_detail", lambda **question: questions.append(question))
    return questions


@pytest.fixture
def token(workspace: Workspace, table: DynamicTable) -> str:
    """Of a refresh of DAG run ``run`` that left one row in quarantine."""
    request = RefreshRequest(table, {}, TICK, "t1", "dag/run/refresh")
    with pytest.raises(QuarantinedError):
        run(workspace, request, lambda plan: write_numbers(plan, (1,)))
    return request.token


class Context(dict[str, Any]):
    def __init__(self, run_id: str = "run") -> None:
        ti = SimpleNamespace(id="ti", dag_id="dag", run_id=run_id, task_id="decide", xcom_push=lambda **_: None)
        super().__init__(ti=ti, outlet_events={ASSET: SimpleNamespace(extra=None)})

    @property
    def event(self) -> Mapping[str, Any] | None:
        extra: Mapping[str, Any] | None = self["outlet_events"][ASSET].extra
        return extra


def operator(table: DynamicTable) -> DecideOperator:
    return DecideOperator(task_id="decide", table=table.identifier, outlets=[ASSET], poll_interval=0.05)


@pytest.mark.usefixtures("token")
def test_it_asks_and_waits(table: DynamicTable, asked: list[dict[str, Any]]) -> None:
    with pytest.raises(TaskDeferred) as waiting:
        operator(table).execute(Context())
    (question,) = asked
    assert (question["ti_id"], question["options"]) == ("ti", ["Publish", "Abort"])
    assert question["subject"] == "Publish default.default.numbers?"
    body = question["body"].replace("\\", "")
    assert body.startswith(
        "row_count: 1 rows; at least 2 expected\n\nIt replaces the complete table.\n\nThe table has no version yet."
    )
    assert "| x |\n| --- |\n| 1 |" in body
    assert "file:" not in body
    assert waiting.value.method_name == "resume"
    path, options = waiting.value.trigger.serialize()
    assert options == {"token": "t1", "conn_id": "dynamic_tables_default", "catalogs_file": None, "poll_interval": 0.05}
    assert import_string(path)(**options).serialize() == (path, options)


@pytest.mark.usefixtures("token")
def test_the_answer_publish_publishes_with_an_event(table: DynamicTable) -> None:
    context = Context()
    report = operator(table).resume(context, {"chosen_options": [PUBLISH], **ANSWERED})
    assert report == context.event
    assert (report["version"], report["rows"], report["refresh"]) == (1, 1, "t1")
    assert datetime.fromisoformat(report["schedule_time"]) == TICK
    assert operator(table).execute(Context()) == report, "another try of the task finds it done"


@pytest.mark.usefixtures("token")
def test_it_tells_no_second_time_when_it_is_cleared(table: DynamicTable, events: list[AssetEventResponse]) -> None:
    report = operator(table).resume(Context(), {"chosen_options": [PUBLISH], **ANSWERED})
    asset = AssetResponse(name=ASSET.name, uri=ASSET.uri, group="dynamic-table")
    events.append(AssetEventResponse(id=1, timestamp=TICK, extra=report, asset=asset, created_dagruns=[]))
    with pytest.raises(AirflowSkipException, match=r"an asset event of version 1 of default\.default\.numbers already"):
        operator(table).execute(Context())


def test_the_answer_abort_aborts_and_fails(table: DynamicTable, workspace: Workspace, token: str) -> None:
    context = Context()
    with pytest.raises(AirflowFailException, match=r"Nothing of default\.default\.numbers was published: aborted by jane"):
        operator(table).resume(context, {"chosen_options": [ABORT], **ANSWERED})
    assert context.event is None
    stage = workspace.ledger.get_stage(token)
    assert stage is not None
    assert stage.state == "ABORTED"


def test_what_was_decided_on_the_command_line_counts(table: DynamicTable, workspace: Workspace, token: str) -> None:
    publish(workspace, token)
    context = Context()
    assert operator(table).resume(context, {})["version"] == 1
    assert context.event is not None


def test_an_answer_that_comes_too_late_is_told(table: DynamicTable, workspace: Workspace, token: str) -> None:
    reject(workspace, token, "superseded by t2")
    with pytest.raises(AirflowFailException, match=r"Stage t1 .* is ABORTED, not in quarantine"):
        operator(table).resume(Context(), {"chosen_options": [PUBLISH], **ANSWERED})
    with pytest.raises(AirflowFailException, match="was published: superseded by t2"):
        operator(table).resume(Context(), {})


@pytest.mark.usefixtures("token")
def test_other_runs_are_not_asked_about(table: DynamicTable, asked: list[dict[str, Any]]) -> None:
    with pytest.raises(AirflowFailException, match="Nothing is in quarantine; see why refresh failed"):
        operator(table).execute(Context("another run"))
    assert asked == []


def test_a_refresh_that_failed_for_another_reason_is_nothing_to_decide(table: DynamicTable, workspace: Workspace) -> None:
    def fail(_: object) -> None:
        raise JobFailedError("DIVIDE_BY_ZERO")

    with pytest.raises(JobFailedError):
        run(workspace, RefreshRequest(table, {}, TICK, "t1", "dag/run/refresh"), fail)
    with pytest.raises(AirflowFailException, match="was published: DIVIDE_BY_ZERO"):
        operator(table).execute(Context())


def test_callbacks_of_the_failed_refresh_leave_the_quarantine_alone(workspace: Workspace, token: str) -> None:
    abort_refresh({"ti": SimpleNamespace(id=token), "task": SimpleNamespace(catalog_hook=lambda: _hook(workspace))})
    stage = workspace.ledger.get_stage(token)
    assert stage is not None
    assert stage.state == "QUARANTINED"


def _hook(workspace: Workspace) -> Any:
    return SimpleNamespace(get_conn=lambda: workspace)


def test_the_trigger_fires_when_the_stage_left_quarantine(workspace: Workspace, token: str) -> None:
    async def publish_while_it_waits() -> bool:
        firing = asyncio.ensure_future(anext(QuarantineTrigger(token, "dynamic_tables_default", poll_interval=0.05).run()))
        await asyncio.wait([firing], timeout=1)
        waited = not firing.done()
        await asyncio.to_thread(publish, workspace, token)
        await asyncio.wait_for(firing, timeout=120)
        return waited

    assert asyncio.run(publish_while_it_waits())
