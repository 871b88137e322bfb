"""Airflow's API, asked from within the server that answers: as the caller, and without waiting for a thread that waits itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request

from airflow_dynamic_tables.api.access import Caller
from airflow_dynamic_tables.api.app import Gate
from airflow_dynamic_tables.api.desk import AppComponents, Declared, Workspaces
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerUnavailableError
from airflow_dynamic_tables.plugins.gateway.runs import AT_ONCE, airflow_as

THREADS = 40
"""That Starlette runs routes in."""


@pytest.fixture
def airflow() -> FastAPI:
    airflow = FastAPI()

    @airflow.get("/api/v2/dags/{dag_id}")
    def dag(dag_id: str, request: Request) -> Mapping[str, object]:
        if dag_id == "broken":
            raise RuntimeError("the database is gone")
        if request.headers["authorization"] != "Bearer hers":
            raise HTTPException(403, "Forbidden")
        return {"dag_id": dag_id, "is_paused": False}

    return airflow


class Everybody:
    async def caller(self, _request: Request) -> Caller:
        return Caller("somebody")


def route_that_asks(airflow: FastAPI, token: str = "hers", gathered: threading.Barrier | None = None) -> FastAPI:
    outer = FastAPI()

    @outer.get("/{dag_id}")
    def ask_airflow(dag_id: str) -> str:
        if gathered is not None:
            gathered.wait(120)
        api = airflow_as(token, airflow)
        try:
            return str(api.dag(dag_id))
        finally:
            api.close()

    return outer


async def ask(app: object, *paths: str) -> list[httpx.Response]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:  # type: ignore[arg-type]
        return await asyncio.gather(*(client.get(path) for path in paths))


def test_it_asks_as_the_caller(airflow: FastAPI) -> None:
    (answer,) = asyncio.run(ask(route_that_asks(airflow), "/mine"))
    assert answer.json() == "Dag(dag_id='mine', is_paused=False, is_stale=False)"
    with pytest.raises(ConfigurationError, match="does not let connection 'the login of the caller' show the DAG mine"):
        asyncio.run(ask(route_that_asks(airflow, token="his"), "/mine"))


def test_what_breaks_in_airflow_is_not_taken_for_an_answer(airflow: FastAPI) -> None:
    with pytest.raises(SchedulerUnavailableError, match="status 500"):
        asyncio.run(ask(route_that_asks(airflow), "/broken"))


@pytest.mark.timeout(60)
def test_requests_do_not_wait_for_threads_that_wait_for_them(airflow: FastAPI) -> None:
    """If each of the 40 threads of an api-server had one of them, none would be left for what they ask of Airflow."""
    gathered = threading.Barrier(min(AT_ONCE, THREADS))
    gateway = AppComponents(Workspaces(None), Declared(None), Everybody(), None, at_once=AT_ONCE)  # type: ignore[arg-type]
    gate = Gate(route_that_asks(airflow, gathered=gathered), gateway)
    answers = asyncio.run(ask(gate, *["/mine"] * 5 * AT_ONCE))
    assert {answer.status_code for answer in answers} == {200}
