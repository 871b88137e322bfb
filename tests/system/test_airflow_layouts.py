"""Tables that share a DAG, and a task group, in a running Airflow: one is skipped, one fails, each has a child."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_dynamic_tables.core.cron import previous_tick
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.airflow import Stack, until
from tests.support.pyarrow_job import write_numbers

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

TABLES = """
defaults:
  {catalog: lake, database: layouts, dag: layouts, retries: 0, freshness: 1 day, schedule: SCHEDULE, spark: {conn_id: STAND_IN}}
sources:
  - {name: layouts_rows, format: json, path: FOLDER, schema: "x bigint, nap bigint"}
dynamic_tables:
  - {name: early, query: SELECT x FROM layouts_rows, schedule: 0 0 1 1 *}
  - {name: child_of_early, query: SELECT x FROM early}
  - {name: failing, query: SELECT x FROM layouts_rows, expectations: [{row_count: {min: 2}, action: fail}]}
  - {name: child_of_failing, query: SELECT x FROM failing}
"""

OWN = """
from airflow_dynamic_tables.task_group import dynamic_table_task_group
from airflow.sdk import DAG

with DAG("layouts_of_ones_own", schedule=None):
    names = ["lake.layouts.early", "lake.layouts.child_of_early", "lake.layouts.failing", "lake.layouts.child_of_failing"]
    dynamic_table_task_group("all", Path(__file__).parent / "definitions", names)
"""
OWN_ID = "layouts_of_ones_own"
DAG_ID = "dynamic_table_group__layouts"
EXPECTED = {"early": "skipped", "child_of_early": "success", "failing": "failed", "child_of_failing": "upstream_failed"}
SCHEDULE = "0 0 1 2 *"


def refresh_early(stack: Stack) -> None:
    definitions = load_definitions(stack.airflow.definitions / "layouts.yaml")
    table = definitions.tables[TableIdentifier("lake", "layouts", "early")]
    with stack.airflow.workspace() as workspace:
        run(workspace, RefreshRequest(table, definitions.sources, datetime.now(UTC), "by-hand", "test"), write_numbers)


def until_known(stack: Stack, dag_id: str) -> None:
    until(dag_id, lambda: stack.get("/dags", dag_id_pattern=dag_id)["total_entries"])


def states_at_the_end(stack: Stack, dag_id: str, run_id: str) -> dict[str, Any]:
    until(f"end of {run_id}", lambda: stack.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"] == "failed", 300)
    tasks = stack.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
    return {task["task_id"].rpartition(".")[2]: task["state"] for task in tasks}


def test_tables_of_one_dag_and_of_a_task_group(stack: Stack) -> None:
    folder = stack.airflow.home / "layouts"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.airflow.define(
        "layouts.yaml", TABLES.replace("FOLDER", str(folder)).replace("SCHEDULE", SCHEDULE).replace("STAND_IN", "spark_stand_in")
    )
    refresh_early(stack)
    stack.airflow.append(OWN)
    for dag_id in (DAG_ID, OWN_ID):
        until_known(stack, dag_id)
        stack.unpause(dag_id)
        # One after the other: two refreshes of one table do not run side by side.
        run_id = stack.first_run(dag_id) if dag_id == DAG_ID else stack.trigger(dag_id)
        assert states_at_the_end(stack, dag_id, run_id) == EXPECTED

    names = [f"dynamic-table://lake/layouts/{name}" for name in EXPECTED]
    events = [event for name in names for event in stack.get("/assets/events", name_pattern=name)["asset_events"]]
    assert sorted((event["source_dag_id"], event["source_task_id"]) for event in events) == [
        (DAG_ID, "lake.layouts.child_of_early"),
        (OWN_ID, "all.lake.layouts.child_of_early"),
    ]
    child = stack.airflow.refreshes("lake.layouts.child_of_early")
    assert {refresh.schedule_time for refresh in child} == {previous_tick(SCHEDULE, "UTC", datetime.now(UTC))}
