"""Who is told in a running Airflow: callbacks of tasks and of DAGs, notifiers with arguments, and deadlines; each beside ours."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.plugins.notes import NOTE
from airflow_dynamic_tables.services.workspace import Workspace, why_suspended
from tests.support.airflow import Stack, jobs_of, until
from tests.support.airflow_version import AIRFLOW_VERSION
from tests.support.suite import missing_service

pytestmark = [pytest.mark.system, pytest.mark.postgres]

LOADED = """
from alerts import page

alerting = Path(__file__).parents[1] / "alerting"
load_dynamic_tables(globals(), alerting, maintenance=False, default_args={"on_failure_callback": page})
"""

ALERTS = """
import json
from pathlib import Path

from airflow.sdk import BaseNotifier

TOLD = Path(__file__).parents[1] / "told.jsonl"


def tell(*what):
    with TOLD.open("a") as file:
        file.write(json.dumps(what) + "\\n")


def page(context):
    tell("page", context["ti"].dag_id)


def ended(context):
    tell("ended", context["dag"].dag_id)


def skipped(context):
    tell("skipped", context["ti"].xcom_pull(key="skipped"))


class Chat(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text, to):
        super().__init__()
        self.text, self.to = text, to

    def notify(self, context):
        tell("chat", self.text, self.to)
"""

ASYNC_ALERTS = """
from pathlib import Path

TOLD = Path(__file__).parents[1] / "told.jsonl"


async def late(context):
    with TOLD.open("a") as file:
        file.write('["late", "%s"]\\n' % context["dag_run"]["dag_id"])
"""

TABLES = """
defaults:
  catalog: lake
  database: alerts
  retries: 0
  suspend_after_failures: 1
  freshness: 1 day
  schedule: 0 0 1 1 *
  spark: {conn_id: spark_stand_in}
sources:
  - {name: rows, format: json, path: FOLDER/rows, schema: "x bigint, nap bigint"}
  - {name: naps, format: json, path: FOLDER/naps, schema: "x bigint, nap bigint"}
  - {name: lost, format: json, path: FOLDER/lost, schema: x bigint}
dynamic_tables:
  - name: by_default
    query: SELECT x FROM lost
  - name: killed
    on_failure_callback:
      - alerts:page
      - {notifier: "alerts:Chat", arguments: {text: "{{ ti.task_id }} of {{ ti.dag_id }}", to: [ada, bob]}}
    dag_on_failure_callback: alerts:ended
    deadline:
      after: 1 second
      callback:
        - async_alerts:late
        CALLED_BY_THE_EXECUTOR
    query: SELECT x FROM naps
  - name: often
    on_skipped_callback: alerts:skipped
    query: SELECT x FROM rows
"""

CALLED_BY_THE_EXECUTOR = """- {notifier: "alerts:Chat", arguments: {text: "{{ dag_run.dag_id }} is late", to: []}}"""
EXECUTOR_CALLS = AIRFLOW_VERSION >= (3, 3)

BY_DEFAULT, KILLED, OFTEN = (f"dynamic_table__lake__alerts__{name}" for name in ("by_default", "killed", "often"))


@pytest.fixture(scope="module")
def folder(stack: Stack) -> Path:
    airflow, folder = stack.airflow, stack.airflow.home / "alerting"
    for name, nap in (("rows", 0), ("naps", 1)):
        (folder / name).mkdir(parents=True)
        (folder / name / "rows.json").write_text(json.dumps({"x": 1, "nap": nap}) + "\n")
    (airflow.plugins / "async_alerts.py").write_text(ASYNC_ALERTS)
    (airflow.home / "dags" / "alerts.py").write_text(ALERTS)
    tables = TABLES.replace("CALLED_BY_THE_EXECUTOR", CALLED_BY_THE_EXECUTOR if EXECUTOR_CALLS else "")
    (folder / "tables.yaml").write_text(tables.replace("FOLDER", str(folder)))
    (airflow.home / "told.jsonl").touch()
    airflow.append(LOADED)
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="dynamic_table__lake__alerts__%")["total_entries"] == 3)
    for dag_id in (BY_DEFAULT, KILLED, OFTEN):
        stack.unpause(dag_id)
    return folder


def kill_worker_of(job: psutil.Process) -> None:
    """Kill a task with its supervisor: that alone would end the task without callbacks."""
    task = job.parent()
    supervisor = task.parent() if task is not None else None
    assert task is not None
    assert supervisor is not None
    assert "LocalExecutor" in " ".join(supervisor.cmdline())
    supervisor.kill()
    task.kill()


@pytest.mark.large
def test_everybody_is_told_and_the_stage_is_given_up_all_the_same(stack: Stack, folder: Path) -> None:
    airflow = stack.airflow

    def heard() -> list[Any]:
        return [json.loads(line) for line in (airflow.home / "told.jsonl").read_text().splitlines()]

    run_id = stack.first_run(KILLED)
    killed = TableIdentifier("lake", "alerts", "killed")
    with airflow.workspace() as workspace:
        (stage,) = until("stage", lambda: workspace.ledger.list_stages(killed), 600)
    (job,) = until("job", lambda: jobs_of(stage.token), 600)
    until("deadline", lambda: ["late", KILLED] in heard(), 600)
    kill_worker_of(job)
    stack.until_state(KILLED, run_id, "failed", seconds=600)

    expected = [
        *([["chat", f"{KILLED} is late", []]] if EXECUTOR_CALLS else []),
        ["late", KILLED],
        ["page", BY_DEFAULT],
        ["page", KILLED],
        ["chat", f"refresh of {KILLED}", ["ada", "bob"]],
        ["ended", KILLED],
    ]
    until("everybody", lambda: all(what in heard() for what in expected), 600)
    (lost,) = until("abort", lambda: [found for found in airflow.refreshes(str(killed)) if found.finished_at], 600)
    assert lost.state is RefreshState.ABORTED
    with airflow.workspace() as workspace:
        assert workspace.ledger.list_stages(killed) == []
        by_default = TableIdentifier("lake", "alerts", "by_default")
        for failed in (killed, by_default):  # by the callback of the DAG processor, and by that of the task
            until("suspension", partial(_why_suspended, workspace, failed), 600)
    (folder / "awake").touch()


@pytest.mark.usefixtures("folder")
@pytest.mark.large
def test_a_run_says_that_nothing_was_refreshed_and_why(stack: Stack) -> None:
    if not entry_points(group="airflow.plugins", name="dynamic_tables"):
        missing_service("install this package again: its entry points are not those of pyproject.toml")
    first = stack.first_run(OFTEN)
    stack.until_state(OFTEN, first, "success", seconds=600)
    run_id = stack.trigger(OFTEN, conf={"schedule_time": "2024-01-01 00:00:00"})
    stack.until_state(OFTEN, run_id, "skipped", seconds=600)
    until("end of the run", lambda: stack.run(OFTEN, run_id)["state"] == "success", 600)
    assert stack.run(OFTEN, run_id)["note"] == NOTE
    assert stack.run(OFTEN, first)["note"].startswith("Version 1, ")
    why = stack.get(f"/dags/{OFTEN}/dagRuns/{run_id}/taskInstances/refresh/xcomEntries/skipped")["value"]
    assert "lake.alerts.often is already fresh" in why
    told = stack.airflow.home / "told.jsonl"
    until("callback", lambda: ["skipped", why] in [json.loads(line) for line in told.read_text().splitlines()], 600)


@pytest.mark.large
@pytest.mark.usefixtures("folder")
def test_a_run_of_a_partition_is_not_taken_for_one_of_now(stack: Stack) -> None:
    body = {"logical_date": None, "partition_key": "2024-01-01"}
    answer = stack.api.post(f"/dags/{OFTEN}/dagRuns", json=body)
    if AIRFLOW_VERSION >= (3, 3):
        assert (answer.status_code, "does not accept a partition_key" in answer.text) == (httpx.codes.BAD_REQUEST, True), (
            answer.text
        )
        return
    run_id = answer.raise_for_status().json()["dag_run_id"]
    stack.until_state(OFTEN, run_id, "failed", seconds=600)
    assert "This run is of partition '2024-01-01', and Airflow 3.2" in stack.log(OFTEN, run_id)


def _why_suspended(workspace: Workspace, table: TableIdentifier) -> str | None:
    return why_suspended(table, workspace.find_entry(table))
