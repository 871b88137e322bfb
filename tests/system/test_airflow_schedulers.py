"""A running Airflow as the scheduler: its DAGs follow their tables."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.schedulers.airflow import AirflowApi, Dag
from airflow_dynamic_tables.schedulers.http import address_of
from airflow_dynamic_tables.services.lifecycle.suspending import resume
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

TABLES = """
defaults: {catalog: lake, database: schedulers, freshness: 1 day, retries: 0, schedule: 0 0 1 1 *}
sources: [{name: nowhere, format: json, path: FOLDER/nowhere, schema: "x bigint"}]
dynamic_tables:
- {name: doomed, suspend_after_failures: 1, query: SELECT x FROM nowhere}
- {name: left, dag: pair, start_date: 2099-01-01, query: SELECT 1 AS x}
- {name: right, dag: pair, start_date: 2099-01-01, query: SELECT 1 AS x}
"""
DOOMED = TableIdentifier("lake", "schedulers", "doomed")
DAG, PAIR = DOOMED.workflow_id, "dynamic_table_group__pair"


def test_a_table_that_is_suspended_in_a_task_has_its_dag_paused(stack: Stack) -> None:
    password = json.loads((stack.airflow.home / "passwords.json").read_text())["admin"]
    reached = Connection(host="127.0.0.1", port=stack.api.base_url.port, login="admin", password=password)
    fields = {name: getattr(reached, name) for name in ("host", "port", "login", "password")}
    connection = {"connection_id": "dynamic_tables_airflow", "conn_type": "http", **fields}
    stack.api.post("/connections", json=connection).raise_for_status()
    stack.airflow.define("schedulers.yaml", TABLES.replace("FOLDER", str(stack.airflow.home)))
    with closing(AirflowApi(address_of("Airflow", "dynamic_tables_airflow", reached), reached)) as api:
        for dag_id, tables in ((DAG, 1), (PAIR, 2)):
            until(f"DAG {dag_id}", partial(api.dag, dag_id))
            assert api.refreshes(dag_id) == tables
        assert {dag.dag_id: dag.is_paused for dag in api.dags()}.items() >= {(DAG, True), (PAIR, True)}
        listed = json.loads(stack.airflow.run("dynamic-tables", "list", "-o", "json").stdout)
        assert {one["workflow_id"]: one["dag_paused"] for one in listed}.items() >= {(DAG, True), (PAIR, True)}, "by its database"
        stack.unpause(DAG)
        stack.until_state(DAG, stack.first_run(DAG), "failed")
        until("a paused DAG", lambda: api.dag(DAG) == Dag(DAG, is_paused=True, is_stale=False))

        with stack.airflow.workspace() as found:
            workspace = replace(found, settings=replace(found.settings, connections=lambda _: reached))
            assert workspace.dynamic_table(DOOMED).refresh_handler.job_state is JobState.SUSPENDED
            assert resume(workspace, DOOMED).workflow == f"The DAG {DAG} is unpaused."
        assert stack.get(f"/dags/{DAG}")["is_paused"] is False

        run = api.trigger(PAIR, {"tables": ["left"]}, "mine")
        assert api.trigger(PAIR, {"tables": ["left"]}, "mine").run_id == run.run_id == "mine"
        assert api.run(PAIR, "mine") is not None
        assert api.delete(PAIR)
