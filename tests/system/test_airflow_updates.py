"""Tables that updates of assets refresh: those of a DAG that knows nothing of ours, whoever comes first; and waiting for data."""

from __future__ import annotations

import json

import pytest

from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

TABLES = """
sources: [{name: awaited, format: json, path: FOLDER/awaited, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.updates.NAME
    retries: 0
    freshness: 1 day
    skip_unchanged: false
    schedule: SCHEDULE
    on: [ON]
    wait_for: [{path: FOLDER/awaited/_SUCCESS}]
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM awaited
"""

PRODUCER = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset

with DAG("producer", schedule=None, is_paused_upon_creation=False) as producer:
    EmptyOperator(task_id="refresh", outlets=[Asset("what others write", uri="URI")])
"""


def define(stack: Stack, name: str, schedule: str, on: str) -> str:
    """Define a table whose DAG runs when Airflow knows it."""
    text = TABLES.replace("NAME", name).replace("SCHEDULE", schedule).replace("ON]", f"{on}]")
    stack.airflow.define(f"{name}.yaml", text.replace("FOLDER", str(stack.airflow.home)).replace("awaited", f"awaited_{name}"))
    folder = stack.airflow.home / f"awaited_{name}"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    dag_id = f"dynamic_table__lake__updates__{name}"
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=dag_id)["total_entries"])
    stack.unpause(dag_id)
    return dag_id


def run_on_update(stack: Stack, dag_id: str) -> str:
    return str(until(f"run of {dag_id}", lambda: stack.runs(dag_id, run_type="asset_triggered"))[0]["dag_run_id"])


def test_updates_of_an_asset_of_others_refresh_a_table(stack: Stack) -> None:
    uri = (stack.airflow.home / "written by others").as_uri().replace("%20", " ")
    before = define(stack, "before", "none", uri)
    stack.airflow.append(PRODUCER.replace("URI", uri))
    until("producer", lambda: stack.get("/dags", dag_id_pattern="producer")["total_entries"])
    after = define(stack, "after", "0 0 1 1 *", uri)
    # Also the producer's own task must run.
    stack.until_state("producer", stack.trigger("producer"), "success")
    run = run_on_update(stack, before)
    stack.until_state(before, run, "deferred")
    until("log", lambda: "_SUCCESS is not there yet." in stack.log(before, run))
    for name in ("before", "after"):
        (stack.airflow.home / f"awaited_{name}" / "_SUCCESS").touch()
    for dag_id in (before, after):
        stack.until_state(dag_id, run_on_update(stack, dag_id), "success")
    (refresh,) = stack.airflow.refreshes("lake.updates.before")
    assert refresh.reason_code == "UPDATED"
    with stack.airflow.workspace() as workspace:
        version = workspace.table(refresh.table, "iceberg").current()
    assert version is not None
    assert version.data_timestamp == refresh.schedule_time
    assert "An asset was updated: file:///" in stack.log(before, run, int(stack.task(before, run)["try_number"]))
