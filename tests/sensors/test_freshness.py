"""A task that waits for a table: with and without a triggerer, until its tick, its timeout, or its suspension."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.sensors.freshness import DynamicTableFreshnessSensor
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.pyarrow_job import write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)
NOON = TICK + timedelta(hours=12)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables:\n- {name: lake.sales.revenue, freshness: 1 day, query: SELECT 1 AS x}\n")
    return path


def sensor(path: Path, **options: Any) -> DynamicTableFreshnessSensor:
    arguments = {"table": "lake.sales.revenue", "deferrable": True, "poke_interval": 0, "timeout": 60, **options}
    return DynamicTableFreshnessSensor(task_id="wait", definitions=path, **arguments)


def context(date: datetime = NOON) -> Any:
    return {"dag_run": SimpleNamespace(conf={}), "params": {}, "logical_date": date}


def refresh(path: Path, tick: datetime = TICK) -> None:
    (table,) = load_definitions(path).tables.values()
    with open_workspace(embedded_settings(os.environ)) as workspace:
        run(workspace, RefreshRequest(table, {}, tick, f"token-{tick:%Y%m%d}", "test"), write_numbers)


def deferral(waiting: DynamicTableFreshnessSensor) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(context())
    return deferred.value


async def fired(deferred: TaskDeferred) -> dict[str, str]:
    return dict((await anext(deferred.trigger.run())).payload)


def test_it_is_deferred_until_the_tick_of_the_run_is_in_the_table(path: Path) -> None:
    waiting = sensor(path)
    deferred = deferral(waiting)
    refresh(path, TICK - timedelta(days=1))
    assert isinstance(deferral(waiting), TaskDeferred), "yesterday's tick is not enough at noon"
    refresh(path)
    event = asyncio.run(fired(deferred))
    waiting.resume(context(), event)
    waiting.execute(context())  # fresh from the beginning


def test_a_table_may_lag(path: Path) -> None:
    refresh(path, TICK - timedelta(days=1))
    sensor(path, max_lag=timedelta(hours=36)).execute(context())
    with pytest.raises(TaskDeferred):
        sensor(path, max_lag=timedelta(hours=35)).execute(context())


def test_it_fails_at_its_timeout_and_says_why(path: Path) -> None:
    waiting = sensor(path, timeout=0)
    event = asyncio.run(fired(deferral(waiting)))
    with pytest.raises(AirflowSensorTimeout) as failed:
        waiting.resume(context(), event)
    missing = "lake.sales.revenue must be fresh up to 2024-01-02T00:00:00+00:00 but has not been refreshed by schedule yet"
    assert str(failed.value) == f"UPSTREAM_LATE: {missing}."
    with pytest.raises(AirflowSkipException):
        sensor(path, timeout=0, soft_fail=True).resume_execution("resume", {"event": event}, context())


def test_without_a_triggerer_it_pokes(path: Path) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(path, deferrable=False, timeout=0).execute(context())
    refresh(path)
    sensor(path, deferrable=False).execute(context())


def test_a_suspended_table_is_not_waited_for(path: Path) -> None:
    refresh(path)
    (table,) = load_definitions(path).tables.values()
    with open_workspace(embedded_settings(os.environ)) as workspace:
        suspend(workspace, table.identifier, reason="moving")
    sensor(path).execute(context())
    for deferrable in (True, False):
        with pytest.raises(AirflowFailException, match=r"UPSTREAM_SUSPENDED: .* is suspended \(moving\)"):
            sensor(path, deferrable=deferrable).execute(context(NOON + timedelta(days=1)))


def test_an_unknown_table_is_an_error_of_the_dag(path: Path) -> None:
    with pytest.raises(Exception, match="revenues"):
        sensor(path, table="lake.sales.revenues")
