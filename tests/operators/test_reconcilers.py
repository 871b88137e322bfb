"""Callbacks put right what the task could not: by token, as often as they like, in any process."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.reconcilers import abort_refresh, complete_refresh, count_failure, count_last_failure
from airflow_dynamic_tables.operators.reporting import UpstreamFailedError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, why_suspended
from airflow_dynamic_tables.services.writes.settling import reconcile
from tests.support.pyarrow_job import write_numbers


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DynamicTableRefreshOperator:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables:\n- {name: t, freshness: 1 day, query: SELECT 1 AS x}\n")
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    return DynamicTableRefreshOperator(task_id="refresh", table=table, definitions=definitions)


@pytest.fixture
def workspace(operator: DynamicTableRefreshOperator) -> Workspace:  # noqa: ARG001 - its home
    return open_workspace(embedded_settings(os.environ))


def request_of(operator: DynamicTableRefreshOperator) -> RefreshRequest:
    return RefreshRequest(operator.table, {}, datetime(2024, 1, 2, tzinfo=UTC), "token", "dag/run/refresh")


def context_of(operator: object, **more: Any) -> dict[str, Any]:
    return {"ti": SimpleNamespace(id="token"), "task": operator, **more}


def test_the_operator_carries_them(operator: DynamicTableRefreshOperator) -> None:
    assert list(operator.on_success_callback) == [complete_refresh]
    assert list(operator.on_retry_callback) == [abort_refresh]
    assert list(operator.on_failure_callback) == [abort_refresh, count_failure]


def test_a_dead_try_is_aborted_as_often_as_airflow_likes(operator: DynamicTableRefreshOperator, workspace: Workspace) -> None:
    begun = begin(workspace, request_of(operator))
    stage = Path(begun.stage.location.removeprefix("file://"))
    assert stage.exists()
    for _ in range(2):
        abort_refresh(context_of(operator, exception=RuntimeError("the worker was lost")))
    assert workspace.ledger.get_stage("token").state is StageState.ABORTED
    assert workspace.ledger.get_refresh("token").error == "the worker was lost"
    assert not stage.exists()


@pytest.mark.parametrize(("state", "found"), [("running", StageState.OPEN), ("failed", StageState.ABORTED)])
def test_a_later_try_is_left_alone(
    operator: DynamicTableRefreshOperator, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, state: str, found: StageState
) -> None:
    """A cleared task has the id of its next try, which is at work elsewhere when Airflow tells of the end of the first."""
    elsewhere = "elsewhere|somewhere|1|2|3"
    monkeypatch.setattr("airflow_dynamic_tables.services.writes.leases.current_process", lambda: elsewhere)
    begin(workspace, request_of(operator))
    task = {"dag_id": "dag", "task_id": "refresh", "run_id": "run", "get_task_states": lambda **_: {"run": {"refresh": state}}}
    abort_refresh({"ti": SimpleNamespace(id="token", **task), "task": operator})
    assert workspace.ledger.get_stage("token").state is found


def test_nothing_happens_after_a_commit(operator: DynamicTableRefreshOperator, workspace: Workspace) -> None:
    version = run(workspace, request_of(operator), write_numbers)
    abort_refresh(context_of(operator))
    complete_refresh(context_of(operator))
    assert workspace.ledger.get_stage("token").state is StageState.COMMITTED
    assert workspace.ledger.get_refresh("token").state is RefreshState.SUCCEEDED
    assert reconcile(workspace, "token") == version


def test_a_commit_that_the_ledger_does_not_know_is_entered(operator: DynamicTableRefreshOperator, workspace: Workspace) -> None:
    run(workspace, request_of(operator), write_numbers)
    workspace.ledger.update_refresh("token", state=RefreshState.RUNNING, version=None)
    workspace.ledger.move_stage("token", (StageState.COMMITTED,), StageState.COMMITTING)
    complete_refresh(context_of(operator))
    assert workspace.ledger.get_stage("token").state is StageState.COMMITTED
    assert workspace.ledger.get_refresh("token").version == 1


@pytest.mark.parametrize("callback", [complete_refresh, abort_refresh])
def test_they_never_raise(
    operator: DynamicTableRefreshOperator,
    callback: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback({})
    monkeypatch.setenv("DYNAMIC_TABLES_DATABASE_URL", "postgresql://127.0.0.1:1/state")
    callback(context_of(operator))
    callback(context_of(None))
    assert caplog.text.count("Could not reconcile refresh") == 3


@pytest.mark.parametrize("callback", [complete_refresh, abort_refresh])
def test_an_unknown_token_is_nothing_to_do(operator: DynamicTableRefreshOperator, workspace: Workspace, callback: Any) -> None:
    callback(context_of(operator))
    assert workspace.ledger.list_refreshes() == []


def run_of(operator: DynamicTableRefreshOperator, run: int, *, kind: str = "scheduled", **more: Any) -> dict[str, Any]:
    ti = SimpleNamespace(
        id=f"token {run}", dag_id="dag", run_id=f"run {run}", task_id="refresh", max_tries=more.pop("max_tries", 0)
    )
    return {"ti": ti, "task": operator, "dag_run": SimpleNamespace(run_type=kind, conf=more.pop("conf", None)), **more}


def test_scheduled_runs_that_fail_in_a_row_suspend_the_table(operator: DynamicTableRefreshOperator, workspace: Workspace) -> None:
    operator.retries = 1
    count, table = count_failure, operator.table.identifier
    for number in (0, 0, 1, 1, 2, 3):
        count(run_of(operator, number, max_tries=1))
    others = ({"kind": "manual"}, {"kind": "backfill"}, {"conf": {"full_refresh": True}}, {"max_tries": 2})
    for number, other in enumerate((*others, {"exception": UpstreamFailedError("late")})):
        count(run_of(operator, 10 + number, **other))
    assert why_suspended(table, workspace.find_entry(table)) is None, "by hand, cleared, or a parent was to blame"
    count(run_of(operator, 5, kind="asset_triggered", exception=RuntimeError("no space")))
    assert "the last one with: no space" in str(why_suspended(table, workspace.find_entry(table)))


def test_a_run_that_was_killed_is_counted_by_the_next_one(operator: DynamicTableRefreshOperator, workspace: Workspace) -> None:
    """A task that the system kills has no callbacks, and Airflow knows all the same."""
    last = SimpleNamespace(run_type="scheduled", state="failed", run_id="run 1")
    states = {"run 1": {"refresh": "failed"}}

    def begun(kind: str = "scheduled") -> dict[str, Any]:
        context = run_of(operator, 2, kind=kind)
        context["ti"].get_previous_dagrun = lambda: last
        context["ti"].get_task_states = lambda **_: states
        return context

    operator.table = replace(operator.table, suspend_after_failures=1)
    states["run 1"]["refresh"] = "success"  # another task of the run failed
    count_last_failure(begun(), workspace)
    states["run 1"]["refresh"] = "failed"
    count_last_failure(begun("manual"), workspace)
    last.run_type = "manual"
    count_last_failure(begun(), workspace)
    count_last_failure(run_of(operator, 2), workspace)  # Airflow does not answer
    assert why_suspended(operator.table.identifier, workspace.find_entry(operator.table.identifier)) is None
    last.run_type = "scheduled"
    count_last_failure(begun(), workspace)
    entry = workspace.find_entry(operator.table.identifier)
    assert "the Airflow task was killed" in str(why_suspended(operator.table.identifier, entry))
