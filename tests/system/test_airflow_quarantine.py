"""A refresh in quarantine, decided in a running Airflow as people do it: under Required Actions, or on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_dynamic_tables.ledger.base import RefreshState
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.postgres]

TABLE, DAG = "lake.sales.fused", "dynamic_table__lake__sales__fused"


@pytest.fixture(scope="module")
def asked(stack: Stack) -> list[str]:
    """Ids of three runs, one after the other, that ended in quarantine and wait side by side for a decision."""
    until("DAG", lambda: stack.api.get(f"/dags/{DAG}").is_success)
    stack.unpause(DAG)
    runs = [stack.first_run(DAG)]
    stack.until_state(DAG, runs[0], "deferred", task_id="decide")
    for _ in range(2):
        runs.append(stack.trigger(DAG, logical_date=datetime.now(UTC).isoformat()))
        stack.until_state(DAG, runs[-1], "deferred", task_id="decide")
    return runs


def decision(run_id: str) -> str:
    return f"/dags/{DAG}/dagRuns/{run_id}/taskInstances/decide/-1/hitlDetails"


def answer(stack: Stack, run_id: str, option: str) -> None:
    stack.api.patch(decision(run_id), json={"chosen_options": [option], "params_input": {}}).raise_for_status()


def events(stack: Stack, run_id: str) -> list[dict[str, Any]]:
    return list(stack.get("/assets/events", source_dag_id=DAG, source_run_id=run_id)["asset_events"])


def token(stack: Stack, run_id: str) -> str:
    return str(stack.task(DAG, run_id)["id"])


@pytest.mark.large
def test_the_refresh_fails_at_once_and_somebody_is_asked(stack: Stack, asked: list[str]) -> None:
    for run_id in asked:
        refresh = stack.task(DAG, run_id)
        assert (refresh["state"], refresh["try_number"]) == ("failed", 1)
        question = stack.get(decision(run_id))
        assert (question["subject"], question["options"]) == (f"Publish {TABLE}?", ["Publish", "Abort"])
        shown = question["body"].replace("\\", "")  # as Markdown shows it
        assert "row_count: 1 rows; at least 2 expected" in shown
        assert "1 rows are in quarantine, for example:\n\n| x |\n| --- |\n| 1 |" in shown
        assert events(stack, run_id) == []
    assert sorted(stack.airflow.stages(TABLE)) == sorted(token(stack, run_id) for run_id in asked)


@pytest.mark.large
def test_abort_publish_and_the_command_line(stack: Stack, asked: list[str]) -> None:
    first, second, third = asked
    answer(stack, first, "Abort")
    stack.until_state(DAG, first, "failed", task_id="decide")
    assert events(stack, first) == []

    answer(stack, second, "Publish")
    stack.until_state(DAG, second, "success", task_id="decide")
    (event,) = events(stack, second)
    assert (event["extra"]["version"], event["extra"]["refresh"]) == (1, token(stack, second))
    assert stack.airflow.rows(TABLE) == [{"x": 1}]

    stack.airflow.check("dynamic-tables", "publish", token(stack, third), "--database-url", stack.airflow.state_url)
    stack.until_state(DAG, third, "success", task_id="decide")
    (event,) = events(stack, third)
    assert event["extra"]["version"] == 2

    states = {refresh.token: (refresh.state, refresh.error) for refresh in stack.airflow.refreshes(TABLE)}
    assert states[token(stack, first)] == (RefreshState.REJECTED, "aborted by admin in Airflow")
    assert states[token(stack, second)] == states[token(stack, third)] == (RefreshState.SUCCEEDED, None)
    assert stack.airflow.stages(TABLE) == []
    ends = {first: "failed", second: "success", third: "success"}
    until("end of the runs", lambda: {run["dag_run_id"]: run["state"] for run in stack.runs(DAG)} == ends)
