"""The task that checks the freshness of all tables, whether they are refreshed or not."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.operators.freshness import FreshnessOperator
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.statsd import statsd_server

TABLES = """
dynamic_tables:
- {name: lake.sales.late, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.fresh, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.never, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.elsewhere, freshness: 1 hour, scheduler: dolphinscheduler, query: SELECT 1 AS x}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text(TABLES)
    return path


def refreshed(name: str, fresh_until: datetime) -> None:
    """Record a refresh that made a table fresh up to a time."""
    now = datetime.now(UTC)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        table = TableIdentifier("lake", "sales", name)
        done = Refresh(f"{name}-{now.isoformat()}", table, RefreshAction.FULL, "", RefreshState.SUCCEEDED, fresh_until, now)
        workspace.ledger.record(replace(done, finished_at=now, data_timestamp=fresh_until, version=1, snapshot="1"))


def check(path: Path) -> list[str]:
    context: Any = {}
    return FreshnessOperator(task_id="check", definitions_path=path).execute(context)


def test_gauges_of_every_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    refreshed("late", now - timedelta(hours=5))
    refreshed("fresh", now - timedelta(minutes=1))
    with statsd_server(monkeypatch) as received:
        assert check(path) == ["lake.sales.late"]
        lines = received()
    gauges = dict(line.removeprefix("airflow.dynamic_tables.").removesuffix("|g").split(":") for line in lines)
    assert {name: value for name, value in gauges.items() if name.startswith("late.")} == {
        "late.lake__sales__late": "1",
        "late.lake__sales__fresh": "0",
        "late.lake__sales__never": "0",
    }
    assert int(gauges["lag.lake__sales__late"]) in range(5 * 3600, 5 * 3600 + 60)
    assert 3600 <= int(gauges["allowed_lag.lake__sales__late"]) <= 7200
    assert "lag.lake__sales__never" not in gauges
    assert gauges["quarantined.lake__sales__fresh"] == gauges["missing_partitions.lake__sales__fresh"] == "0"
