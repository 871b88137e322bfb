"""DAGs that wait for a table, whatever they call it and whoever comes first: they run when it has other rows, and only then."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support import cluster_stand_in
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

TABLE = """
defaults: {retries: 0, freshness: 1 day, schedule: 0 0 1 1 *, spark: {conn_id: spark_stand_in}}
sources: [{name: waited_for_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - {name: lake.assets.parent, query: SELECT x FROM waited_for_source}
  - {name: lake.assets.child, query: SELECT x FROM lake.assets.parent}
"""

WAITING = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset

with DAG("DAG_ID", schedule=[ASSET], is_paused_upon_creation=False) as DAG_ID:
    EmptyOperator(task_id="wake")
"""
PARENT, CHILD = "dynamic_table__lake__assets__parent", "dynamic_table__lake__assets__child"
OBVIOUS = 'Asset("dynamic-table://lake/assets/parent")'
OTHER_NAME = 'Asset("lake.assets.parent", uri="dynamic-table://lake/assets/parent")'
"""As our own asset was called by 0.1.0."""


def add_waiting(stack: Stack, dag_id: str, asset: str) -> None:
    stack.airflow.append(WAITING.replace("DAG_ID", dag_id).replace("ASSET]", f"{asset}]"))
    until(dag_id, lambda: stack.get("/dags", dag_id_pattern=dag_id)["total_entries"])


def until_run(stack: Stack, dag_id: str, count: int) -> None:
    until(f"{count} runs of {dag_id}", lambda: len(stack.runs(dag_id, state="success")) == count)


def refresh_without_airflow(stack: Stack) -> None:
    definitions = load_definitions(stack.airflow.definitions / "assets.yaml")
    table = definitions.tables[TableIdentifier("lake", "assets", "parent")]
    request = RefreshRequest(table, definitions.sources, datetime(2020, 1, 1, tzinfo=UTC), "before-airflow", "test")
    with stack.airflow.workspace() as workspace:
        run(workspace, request, cluster_stand_in.run)


def test_who_waits_for_a_table_runs_and_stops_no_refresh(stack: Stack) -> None:
    add_waiting(stack, "waits_for_other_name", OTHER_NAME)
    add_waiting(stack, "waits_first", OBVIOUS)
    folder = stack.airflow.home / "waited_for"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    long_ago = datetime(2020, 1, 1, tzinfo=UTC).timestamp() + 0.5  # what changed just before it is read is read again
    os.utime(folder / "rows.json", (long_ago, long_ago))
    stack.airflow.define("assets.yaml", TABLE.replace("FOLDER", str(folder)))
    refresh_without_airflow(stack)
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="dynamic_table__lake__assets__%")["total_entries"] == 2)
    stack.unpause(PARENT)
    left_out = stack.first_run(PARENT)
    stack.until_state(PARENT, left_out, "skipped", seconds=300)
    newest = stack.airflow.refreshes("lake.assets.parent")[0]
    assert (newest.action, newest.version) == (RefreshAction.NO_DATA, 1)
    assert newest.data_timestamp == datetime.fromisoformat(stack.run(PARENT, left_out)["logical_date"])
    # Who reads it by its own schedule waits for nothing, and finds it as fresh as that.
    stack.unpause(CHILD)
    stack.until_state(CHILD, stack.first_run(CHILD), "success", seconds=300)
    assert stack.airflow.refreshes("lake.assets.child")[0].sources == {"lake.assets.parent": newest.snapshot}

    # What somebody asks for is done, though nothing has moved; and only of that Airflow hears.
    asked = stack.trigger(PARENT, conf={"full_refresh": True})
    stack.until_state(PARENT, asked, "success", seconds=300)
    until_run(stack, "waits_first", 1)
    until_run(stack, "waits_for_other_name", 1)
    events = stack.get("/assets/events", source_dag_id=PARENT)["asset_events"]
    assert {event["source_run_id"] for event in events} == {asked}

    add_waiting(stack, "waits_second", OBVIOUS)
    stack.until_state(PARENT, stack.trigger(PARENT), "success", seconds=300)
    for dag_id, count in {"waits_second": 1, "waits_first": 2, "waits_for_other_name": 2}.items():
        until_run(stack, dag_id, count)
