"""What differs between deployments, in a running Airflow: environment, Airflow's variables, params, and the ids of DAGs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

DEFAULTS = """
defaults:
  catalog: lake
  database: deployed
  retries: 0
  freshness: 1 day
  schedule: 0 0 1 1 *
  dag_id_prefix: "${NO_SUCH_VARIABLE:-team_}"
  params: {region: eu}
  on_success_callback: "deployed_alerts:told"
  spark: {conn_id: spark_stand_in, conf: {app.place: "{{ params.region }}-{{ var.value.deployed_colour }}"}}
"""

TABLES = """
sources: [{name: rows, format: json, path: "${AIRFLOW_HOME}/deployed", schema: "x bigint, nap bigint"}]
dynamic_tables:
  - {name: parent, query: SELECT x FROM rows}
  - {name: child, query: SELECT x FROM parent}
"""

ALERTS = """
import json
from pathlib import Path


def told(context):
    with Path("TOLD").open("a") as file:
        file.write(json.dumps([context["dag"].dag_id, context["params"]["region"]]) + "\\n")
"""

PARENT, CHILD = (f"team_dynamic_table__lake__deployed__{name}" for name in ("parent", "child"))


def test_one_deployment(stack: Stack) -> None:
    airflow = stack.airflow
    told = airflow.home / "told_of_deployed.jsonl"
    (airflow.plugins / "deployed_alerts.py").write_text(ALERTS.replace("TOLD", str(told)))
    (airflow.home / "deployed").mkdir()
    (airflow.home / "deployed" / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.api.post("/variables", json={"key": "deployed_colour", "value": "red"}).raise_for_status()
    (airflow.definitions / "deployed").mkdir()
    airflow.define("deployed/defaults.yaml", DEFAULTS)
    airflow.define("deployed/tables.yaml", TABLES)
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="team_dynamic_table__%")["total_entries"] == 2)
    for dag_id in (PARENT, CHILD):
        stack.unpause(dag_id)
    # One after the other: two refreshes of one table do not run side by side.
    stack.until_state(PARENT, stack.first_run(PARENT), "success")
    run_id = stack.trigger(PARENT, conf={"region": "us"})
    task = stack.until_state(PARENT, run_id, "success")
    assert "us-red" in str(task["rendered_fields"]["conf"])
    stack.until_state(CHILD, stack.first_run(CHILD), "success")

    def heard() -> list[Any]:
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    until("callbacks", lambda: [PARENT, "us"] in heard() and [CHILD, "eu"] in heard())
    listed = json.loads(airflow.run("dynamic-tables", "list", "--output", "json").stdout)
    assert {row["workflow_id"] for row in listed if row["identifier"].startswith("lake.deployed.")} == {PARENT, CHILD}
