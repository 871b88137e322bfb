"""What a running Airflow keeps of refreshes: XComs, events, rendered fields, serialised DAGs and logs hold no secret."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.support.airflow import Stack
from tests.system.conftest import STATE_PASSWORD

pytestmark = [pytest.mark.system, pytest.mark.postgres]

DAG = "dynamic_table__lake__sales__fused"


def tables_with(url: str, text: str) -> set[str]:
    """The tables of a database in which a text stands."""
    with psycopg.connect(url) as connection:
        names = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        query = sql.SQL("SELECT 1 FROM {table} AS row WHERE position(%(text)s IN row::text) > 0 LIMIT 1")
        return {name for name in names if connection.execute(query.format(table=sql.Identifier(name)), {"text": text}).fetchone()}


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_airflow_keeps_no_secret(stack: Stack) -> None:
    stack.unpause(DAG)
    run_id = stack.first_run(DAG)
    stack.until_state(DAG, run_id, "success")
    metadata = stack.airflow.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "")
    looked_at = tables_with(metadata, "fused")
    assert {"serialized_dag", "rendered_task_instance_fields", "asset_event"} <= looked_at, "or the search is blind"
    assert tables_with(metadata, STATE_PASSWORD) == set()
    assert tables_with(stack.airflow.state_url, STATE_PASSWORD) == set()
    assert files_with(stack.airflow.home, "fused"), "or the search is blind"
    assert files_with(stack.airflow.home, STATE_PASSWORD) == []
    assert STATE_PASSWORD not in stack.log(DAG, run_id)
