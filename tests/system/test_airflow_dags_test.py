"""``airflow dags test`` with a real spark-submit: the simplest way to run one table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_dynamic_tables.ledger.base import RefreshState
from tests.support.airflow import Airflow

pytestmark = [pytest.mark.system, pytest.mark.spark]

TABLE, DAG = "lake.sales.numbers", "dynamic_table__lake__sales__numbers"


def define(airflow: Airflow, query: str, spark: str = "SPARK") -> None:
    airflow.define(
        "numbers.yaml",
        f"""
        defaults: {{catalog: lake, database: sales, retries: 0, spark: {spark}}}
        dynamic_tables:
          - {{name: numbers, freshness: 1 day, query: "{query}"}}
        """,
    )


@pytest.mark.large
def test_a_table_is_committed_before_success_and_survives_a_failing_query(embedded_airflow: Airflow) -> None:
    airflow = embedded_airflow
    define(airflow, "SELECT id AS x FROM range(3)")
    log = airflow.check("dags", "test", DAG, "2024-01-02")
    assert log.index("Refresh of lake.sales.numbers: 3 rows") < log.index("new_state=success")
    assert sorted(row["x"] for row in airflow.rows(TABLE)) == [0, 1, 2]
    (refresh,) = airflow.refreshes(TABLE)
    assert (refresh.state, refresh.version, refresh.schedule_time.isoformat()) == (
        RefreshState.SUCCEEDED,
        1,
        "2024-01-02T00:00:00+00:00",
    )

    define(airflow, "SELECT CAST('no number' AS bigint) AS x")
    done = airflow.run("dags", "test", DAG, "2024-01-03")
    assert "DagRun failed" in done.stdout + done.stderr
    message = _exception(done.stdout)
    assert "CAST_INVALID_INPUT" in message
    assert "\tat " not in message
    assert sorted(row["x"] for row in airflow.rows(TABLE)) == [0, 1, 2]
    failed = airflow.refreshes(TABLE)[0]
    assert failed.state is RefreshState.FAILED
    assert "CAST_INVALID_INPUT" in (failed.error or "")
    assert not airflow.stages()
    assert not _files_of(airflow, failed.token)


@pytest.mark.large
def test_an_unknown_spark_connection_fails_at_once(embedded_airflow: Airflow) -> None:
    define(embedded_airflow, "SELECT 1 AS x", spark="{conn_id: nowhere}")
    done = embedded_airflow.run("dags", "test", DAG, "2024-01-04")
    assert _exception(done.stdout).startswith("Spark connection 'nowhere' does not exist; create it")
    assert not embedded_airflow.stages()


@pytest.mark.large
def test_the_commands_read_the_ledger_of_the_connection(embedded_airflow: Airflow) -> None:
    """Of a connection in Airflow's own database, which only the DAGs' processes are given without asking."""
    define(embedded_airflow, "SELECT 1 AS x")
    extra = json.dumps({"database_url": f"sqlite:///{embedded_airflow.home}/elsewhere.db"})
    add = ("connections", "add", "dynamic_tables_elsewhere", "--conn-type", "dynamic_tables", "--conn-extra", extra)
    embedded_airflow.check(*add)
    asked = embedded_airflow.run(
        "dynamic-tables", "history", "--output", "json", AIRFLOW__DYNAMIC_TABLES__CONNECTION="dynamic_tables_elsewhere"
    )
    assert (asked.returncode, json.loads(asked.stdout)) == (0, []), asked.stderr
    assert (embedded_airflow.home / "elsewhere.db").is_file()


@pytest.mark.large
def test_a_task_makes_a_table_once_and_a_failing_query_makes_none(embedded_airflow: Airflow) -> None:
    airflow = embedded_airflow
    (airflow.home / "dags" / "freeze.py").write_text(FREEZE)
    log = airflow.check("dags", "test", "freeze", "2024-01-02")
    assert log.index("lake.sales.frozen_20240102: created, 3 rows") < log.index("new_state=success")
    assert sorted(row["x"] for row in airflow.rows("lake.sales.frozen_20240102")) == [0, 1, 2]

    done = airflow.run("dags", "test", "freeze", "2024-01-03", QUERY="SELECT CAST('no number' AS bigint) AS x")
    assert "DagRun failed" in done.stdout + done.stderr
    with airflow.workspace() as workspace:
        names = workspace.catalog("lake").list_tables("sales")
        assert [name for name in names if name.startswith("frozen")] == ["frozen_20240102"]
    assert not airflow.stages()


FREEZE = """
import os
from datetime import datetime
from airflow.sdk import DAG
from airflow_dynamic_tables.operators.one_off.create_table_as import CreateTableAsOperator

with DAG("freeze", schedule=None, start_date=datetime(2024, 1, 1), catchup=False):
    query = os.environ.get("QUERY", "SELECT id AS x FROM range(3)")
    CreateTableAsOperator(task_id="freeze", table="lake.sales.frozen_{{ ds_nodash }}", query=query)
"""


def _exception(log: str) -> str:
    found = re.findall(r"^airflow\.\S+\.Airflow(?:Fail)?Exception: (.*?)(?=^\d{4}-\d\d-\d\dT)", log, re.DOTALL | re.MULTILINE)
    assert found, log[-4000:]
    return str(found[-1])


def _files_of(airflow: Airflow, token: str) -> list[Path]:
    return list(airflow.warehouse.rglob(f"*{token}*"))
