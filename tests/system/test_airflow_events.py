"""A task that is killed between its commit and its end: the version has its asset event all the same, from the maintenance."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.system, pytest.mark.postgres]

TABLE = """
sources: [{name: told_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.events.told
    retries: 0
    freshness: 1 day
    schedule: 0 0 1 1 *
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM told_source
"""
ASSET = "dynamic-table://lake/events/told"
DAG, MAINTENANCE = "dynamic_table__lake__events__told", "dynamic_tables__maintenance"

KILLED_ONCE = """
if "dynamic_table__lake__events__told" in globals() and not Path("MARK").exists():
    import os, signal, sys

    def die(event, _arguments):
        if event == "airflow_dynamic_tables.completed" and not Path("MARK").exists():
            Path("MARK").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
"""


def events(stack: Stack) -> list[dict[str, Any]]:
    found = stack.get("/assets/events", name_pattern=ASSET, order_by="timestamp")["asset_events"]
    return [event for event in found if event["name"] == ASSET]


def maintain(stack: Stack) -> None:
    stack.until_state(MAINTENANCE, stack.trigger(MAINTENANCE), "success", task_id="sweep", seconds=600)


@pytest.mark.large
def test_a_task_that_is_killed_after_its_commit_has_its_event_once(stack: Stack) -> None:
    folder = stack.airflow.home / "told"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.airflow.define("events.yaml", TABLE.replace("FOLDER", str(folder)))
    stack.airflow.append(KILLED_ONCE.replace("MARK", str(stack.airflow.home / "killed_once")))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=DAG)["total_entries"])
    stack.unpause(DAG)
    run_id = stack.first_run(DAG)
    stack.until_state(DAG, run_id, "failed", seconds=600)
    (killed,) = stack.airflow.refreshes("lake.events.told")
    assert killed.state == "SUCCEEDED"
    assert events(stack) == []

    stack.unpause(MAINTENANCE)
    maintain(stack)
    (late,) = events(stack)
    assert (late["extra"]["version"], late["extra"]["refresh"], late["extra"]["rows"]) == (1, killed.token, 1)
    assert (late["source_dag_id"], late["source_task_id"]) == (MAINTENANCE, "sweep")
    stack.until_state(DAG, stack.trigger(DAG), "success", seconds=600)
    maintain(stack)
    assert [event["extra"]["version"] for event in events(stack)] == [1, 2]
