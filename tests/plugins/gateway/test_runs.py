"""What a run of a DAG is triggered with, and which runs would never begin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from airflow_dynamic_tables.api.access import Caller
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError, DynamicTableError, ForbiddenError
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.plugins.gateway.runs import AirflowRuns
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ONE, TWO, OTHER = (TableIdentifier("lake", "sales", name) for name in ("one", "two", "other"))
DAGS = {ONE: "pair", TWO: "pair", OTHER: "other"}


@dataclass(frozen=True)
class Login:
    token: str | None = "hers"


@dataclass
class StandIn:
    """Stands for Airflow's API: DAGs, how many tables each refreshes, and what became of a request to trigger one."""

    triggered: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    dags: dict[str, dict[str, Any]] = field(default_factory=lambda: {"pair": {"tables": 2}, "other": {"tables": 1}})

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/api/v2/version")
        def version() -> Mapping[str, str]:
            return {"version": "3"}

        @app.get("/api/v2/dags/{dag_id}")
        def dag(dag_id: str) -> Mapping[str, Any]:
            known = self.dags.get(dag_id)
            if known is None:
                raise HTTPException(404, "no such DAG")
            return {"dag_id": dag_id, "is_paused": known.get("is_paused", False), "is_stale": known.get("is_stale", False)}

        @app.get("/api/v2/dags/{dag_id}/tasks")
        def tasks(dag_id: str) -> Mapping[str, Any]:
            return {"tasks": [{"operator_name": "DynamicTableRefreshOperator"}] * self.dags[dag_id]["tables"]}

        @app.post("/api/v2/dags/{dag_id}/dagRuns")
        def trigger(dag_id: str, body: dict[str, Any]) -> Mapping[str, Any]:
            if status := self.dags[dag_id].get("refuses"):
                raise HTTPException(status, "no")
            self.triggered.append((dag_id, body))
            return {"dag_run_id": body["dag_run_id"], "state": "queued"}

        return app


@pytest.fixture
def airflow() -> StandIn:
    return StandIn()


def start(workspace: Workspace, airflow: StandIn, *tables: TableIdentifier, user: Login | None = None, **wish: Any) -> Job:
    job = Job("j1", "ann", NOON, NOON, RefreshWish(**wish), tuple(map(JobRefresh, tables)))
    workspace.ledger.add_job(job)
    app, server = airflow.app(), FastAPI()
    runs = AirflowRuns(app, lambda _, table: DAGS[table])

    @server.post("/")
    def route() -> None:
        runs.start(workspace, Caller("ann", user or Login()), job)

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://test") as client:
            await client.post("/")

    asyncio.run(ask())
    started = workspace.ledger.get_job("j1")
    assert started is not None
    return started


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        yield workspace


def test_a_dag_of_several_tables_is_told_which(workspace: Workspace, airflow: StandIn) -> None:
    job = start(workspace, airflow, ONE, OTHER, schedule_time="2024-01-01T00:00:00", full_refresh=True)
    time = {"schedule_time": "2024-01-01T00:00:00", "full_refresh": True}
    common = {"dag_run_id": "rest__j1", "logical_date": None}
    assert airflow.triggered == [
        ("pair", {**common, "conf": {**time, "tables": ["lake.sales.one"]}}),
        ("other", {**common, "conf": time}),
    ]
    assert [refresh.state for refresh in job.refreshes] == [WorkState.RUNNING] * 2
    assert job.refreshes[0].cluster_info == {"clusterType": "airflow", "dagId": "pair", "runId": "rest__j1"}


def test_tables_of_one_dag_have_one_run(workspace: Workspace, airflow: StandIn) -> None:
    start(workspace, airflow, ONE, TWO, partition="ds=2024-01-01")
    ((_, body),) = airflow.triggered
    assert body["conf"] == {"partition": "ds=2024-01-01", "tables": ["lake.sales.one", "lake.sales.two"]}


@pytest.mark.parametrize(
    ("other", "error", "told"),
    [
        ({"is_paused": True}, ConflictError, "DAG other is paused"),
        ({"is_stale": True}, ConflictError, "Airflow has no DAG other"),
        (None, ConflictError, "Airflow has no DAG other"),
    ],
)
def test_a_run_that_would_not_begin_is_refused_before_any_other(
    workspace: Workspace, airflow: StandIn, other: dict[str, Any] | None, error: type[DynamicTableError], told: str
) -> None:
    del airflow.dags["other"]
    if other is not None:
        airflow.dags["other"] = {"tables": 1, **other}
    with pytest.raises(error, match=told):
        start(workspace, airflow, ONE, OTHER)
    assert airflow.triggered == []


@pytest.mark.parametrize(("status", "error"), [(401, ForbiddenError), (403, ForbiddenError), (400, ConflictError)])
def test_what_airflow_refuses_is_refused(
    workspace: Workspace, airflow: StandIn, status: int, error: type[DynamicTableError]
) -> None:
    airflow.dags["pair"]["refuses"] = status
    with pytest.raises(error):
        start(workspace, airflow, ONE, OTHER)
    assert airflow.triggered == []


def test_of_a_job_that_has_begun_what_airflow_refuses_is_what_fails(workspace: Workspace, airflow: StandIn) -> None:
    airflow.dags["other"]["refuses"] = 400
    job = start(workspace, airflow, ONE, OTHER)
    one, other = job.refreshes
    assert (one.state, other.state) == (WorkState.RUNNING, WorkState.FAILED)
    assert "Airflow did not trigger the DAG other: status 400: no" in str(other.error)


def test_a_run_of_which_nobody_knows_is_looked_for(workspace: Workspace, airflow: StandIn) -> None:
    """Airflow broke while it made the run: perhaps it made it."""
    airflow.dags["pair"]["refuses"] = 500
    (refresh,) = start(workspace, airflow, ONE).refreshes
    assert (refresh.state, refresh.cluster_info["runId"]) == (WorkState.RUNNING, "rest__j1")


def test_force_and_the_tick_of_another_scheduler_are_passed_on(workspace: Workspace, airflow: StandIn) -> None:
    start(workspace, airflow, OTHER, is_forced=True, is_periodic=True)
    ((_, body),) = airflow.triggered
    assert body["conf"] == {"even_if_suspended": True, "dynamic_tables.is_periodic": True}


def test_nothing_is_done_for_who_has_no_token(workspace: Workspace, airflow: StandIn) -> None:
    with pytest.raises(ForbiddenError, match="login of its own"):
        start(workspace, airflow, ONE, user=Login(None))
    assert airflow.triggered == []
