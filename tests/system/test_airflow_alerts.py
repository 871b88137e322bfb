"""Who is told in a running Airflow: callbacks of tasks and of DAGs, notifiers with arguments, and deadlines; each beside ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import RefreshState
from tests.support.airflow import Stack, jobs_of, until

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
  freshness: 1 day
  schedule: 0 0 1 1 *
  spark: {conn_id: spark_stand_in}
sources:
  - {name: rows, format: json, path: FOLDER/rows, schema: "x bigint, nap bigint"}
  - {name: naps, format: json, path: FOLDER/naps, schema: "x bigint, nap bigint"}
dynamic_tables:
  - name: by_default
    query: SELECT x FROM rows
    expectations: [{row_count: {min: 2}}]
  - name: killed
    on_failure_callback:
      - alerts:page
      - {notifier: "alerts:Chat", arguments: {text: "{{ ti.task_id }} of {{ ti.dag_id }}", to: [ada, bob]}}
    dag_on_failure_callback: alerts:ended
    deadline:
      after: 1 second
      callback:
        - {notifier: "alerts:Chat", arguments: {text: "{{ dag_run.dag_id }} is late", to: []}}
        - async_alerts:late
    query: SELECT x FROM naps
"""

BY_DEFAULT, KILLED = "dynamic_table__lake__alerts__by_default", "dynamic_table__lake__alerts__killed"


def test_everybody_is_told_and_the_stage_is_given_up_all_the_same(stack: Stack) -> None:
    airflow = stack.airflow
    folder, told = airflow.home / "alerting", airflow.home / "told.jsonl"
    for name, nap in (("rows", 0), ("naps", 1)):
        (folder / name).mkdir(parents=True)
        (folder / name / "rows.json").write_text(json.dumps({"x": 1, "nap": nap}) + "\n")
    (airflow.plugins / "async_alerts.py").write_text(ASYNC_ALERTS)
    (airflow.home / "dags" / "alerts.py").write_text(ALERTS)
    (folder / "tables.yaml").write_text(TABLES.replace("FOLDER", str(folder)))
    told.touch()
    airflow.append(LOADED)

    def heard() -> list[Any]:
        return [json.loads(line) for line in told.read_text().splitlines()]

    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="dynamic_table__lake__alerts__%")["total_entries"] == 2)
    for dag_id in (BY_DEFAULT, KILLED):
        stack.unpause(dag_id)
    run_id = stack.first_run(KILLED)
    killed = TableIdentifier("lake", "alerts", "killed")
    with airflow.workspace() as workspace:
        (stage,) = until("stage", lambda: workspace.ledger.list_stages(killed), 600)
    (job,) = until("job", lambda: jobs_of(stage.token), 600)
    until("deadline", lambda: ["late", KILLED] in heard(), 600)
    task = job.parent()
    assert task is not None
    task.kill()
    stack.until_state(KILLED, run_id, "failed", seconds=600)

    expected = [
        ["chat", f"{KILLED} is late", []],
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
    (folder / "awake").touch()
