"""What a running Airflow keeps of refreshes: XComs, events, rendered fields, serialised DAGs and logs hold no secret."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.support.airflow import Stack, until
from tests.support.busy_folders import contents_below
from tests.system.conftest import STATE_PASSWORD

pytestmark = [pytest.mark.system, pytest.mark.postgres]

TABLE = """
sources: [{name: guarded_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.secrets.guarded
    retries: 0
    freshness: 1 day
    schedule: 0 0 1 1 *
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM guarded_source
"""
DAG = "dynamic_table__lake__secrets__guarded"


def tables_with(url: str, text: str) -> set[str]:
    with psycopg.connect(url) as connection:
        names = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        query = sql.SQL("SELECT 1 FROM {table} AS row WHERE position(%(text)s IN row::text) > 0 LIMIT 1")
        return {name for name in names if connection.execute(query.format(table=sql.Identifier(name)), {"text": text}).fetchone()}


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path, content in contents_below(folder) if text.encode() in content]


def test_airflow_keeps_no_secret(stack: Stack) -> None:
    folder = stack.airflow.home / "guarded"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.airflow.define("secrets.yaml", TABLE.replace("FOLDER", str(folder)))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=DAG)["total_entries"])
    stack.unpause(DAG)
    run_id = stack.first_run(DAG)
    stack.until_state(DAG, run_id, "success")
    metadata = stack.airflow.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "")
    looked_at = tables_with(metadata, "guarded")
    assert {"serialized_dag", "rendered_task_instance_fields", "asset_event"} <= looked_at, "or the search is blind"
    assert tables_with(metadata, STATE_PASSWORD) == set()
    assert tables_with(stack.airflow.state_url, STATE_PASSWORD) == set()
    assert files_with(stack.airflow.home, "guarded"), "or the search is blind"
    assert files_with(stack.airflow.home, STATE_PASSWORD) == []
    assert STATE_PASSWORD not in stack.log(DAG, run_id)
