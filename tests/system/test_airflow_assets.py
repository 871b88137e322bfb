"""DAGs that wait for a table, whatever they call it and whoever comes first: they run, and the table is refreshed."""

from __future__ import annotations

import json

import pytest

from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.system, pytest.mark.postgres]

TABLE = """
sources: [{name: waited_for_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.assets.parent
    retries: 0
    freshness: 1 day
    schedule: 0 0 1 1 *
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM waited_for_source
"""

WAITING = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset

with DAG("DAG_ID", schedule=[ASSET], is_paused_upon_creation=False) as DAG_ID:
    EmptyOperator(task_id="wake")
"""
PARENT = "dynamic_table__lake__assets__parent"
OBVIOUS = 'Asset("dynamic-table://lake/assets/parent")'
OTHER_NAME = 'Asset("lake.assets.parent", uri="dynamic-table://lake/assets/parent")'
"""As our own asset was called by 0.1.0."""


def add_waiting(stack: Stack, dag_id: str, asset: str) -> None:
    stack.airflow.append(WAITING.replace("DAG_ID", dag_id).replace("ASSET]", f"{asset}]"))
    until(dag_id, lambda: stack.get("/dags", dag_id_pattern=dag_id)["total_entries"])


def until_run(stack: Stack, dag_id: str, count: int) -> None:
    until(f"{count} runs of {dag_id}", lambda: len(stack.runs(dag_id, state="success")) == count)


def test_who_waits_for_a_table_runs_and_stops_no_refresh(stack: Stack) -> None:
    add_waiting(stack, "waits_for_other_name", OTHER_NAME)
    add_waiting(stack, "waits_first", OBVIOUS)
    folder = stack.airflow.home / "waited_for"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.airflow.define("assets.yaml", TABLE.replace("FOLDER", str(folder)))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=PARENT)["total_entries"])
    stack.unpause(PARENT)
    stack.until_state(PARENT, stack.first_run(PARENT), "success", seconds=300)
    until_run(stack, "waits_first", 1)
    until_run(stack, "waits_for_other_name", 1)

    add_waiting(stack, "waits_second", OBVIOUS)
    stack.until_state(PARENT, stack.trigger(PARENT), "success", seconds=300)
    for dag_id, count in {"waits_second": 1, "waits_first": 2, "waits_for_other_name": 2}.items():
        until_run(stack, dag_id, count)
