"""What Airflow mounts: costs nothing before it is asked, and never takes Airflow down."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import httpx
import pytest
from fastapi import FastAPI

from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.plugins.gateway import mounting
from airflow_dynamic_tables.plugins.gateway.mounting import PREFIX, Gateway
from airflow_dynamic_tables.plugins.notes import DynamicTablesPlugin


@pytest.fixture
def airflow() -> FastAPI:
    """Stands for Airflow's application: has the gateway in it, and is itself below a prefix, as behind a proxy."""
    airflow = FastAPI(root_path="/prod")

    @airflow.get("/api/v2/version")
    def version() -> str:
        return "3"

    airflow.mount(PREFIX, Gateway())
    return airflow


def application(_airflow: object) -> FastAPI:
    inner = FastAPI()

    @inner.get("/v3/dynamic-tables/{name}")
    def table(name: str) -> str:
        return name

    return inner


async def ask(airflow: FastAPI, *paths: str) -> list[httpx.Response]:
    transport = httpx.ASGITransport(airflow, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await asyncio.gather(*(client.get(path) for path in paths))


@pytest.mark.parametrize("prefix", ["", "/prod"])
def test_the_paths_are_the_same_with_airflow_and_without(airflow: FastAPI, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setattr(mounting, "_open", application)
    (answer,) = asyncio.run(ask(airflow, f"{prefix}/v3/dynamic-tables/sales"))
    assert answer.json() == "sales"


def test_a_gateway_that_cannot_be_opened_answers_503_until_it_can(airflow: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_airflow: object) -> FastAPI:
        raise ConfigurationError("The database of S3CR3T is wrong.")

    monkeypatch.setattr(mounting, "_open", broken)
    refused, fine = asyncio.run(ask(airflow, "/v3/dynamic-tables/sales", "/api/v2/version"))
    assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
    assert (refused.json()["status"], refused.json()["instance"]) == (503, "/v3/dynamic-tables/sales")
    assert "S3CR3T" not in refused.text, "nobody knows yet who asks"
    assert fine.json() == "3"
    monkeypatch.setattr(mounting, "_open", application)
    (answer,) = asyncio.run(ask(airflow, "/v3/dynamic-tables/sales"))
    assert answer.status_code == 200


def test_it_is_opened_once_whoever_comes_first(airflow: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def counted(airflow: object) -> FastAPI:
        opened.append(airflow)
        return application(airflow)

    monkeypatch.setattr(mounting, "_open", counted)
    answers = asyncio.run(ask(airflow, *["/v3/dynamic-tables/sales"] * 10))
    assert {answer.status_code for answer in answers} == {200}
    assert opened == [airflow]


def test_airflow_is_given_it_and_nothing_heavy_is_imported() -> None:
    """Every component of Airflow loads the plugins."""
    (ours,) = DynamicTablesPlugin.fastapi_apps
    assert ours["url_prefix"] == PREFIX
    assert isinstance(ours["app"], Gateway)
    code = (
        "import sys; import airflow_dynamic_tables.plugins.gateway.mounting; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'airflow', 'fastapi', 'httpx', 'sqlalchemy'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
