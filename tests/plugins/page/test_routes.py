"""Every route of the api-server that is ours, those of the page's files included, and who may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.plugins.gateway.mounting import PREFIX, Gateway
from airflow_dynamic_tables.plugins.gateway.opening import open_gateway
from airflow_dynamic_tables.plugins.page.files import FOLDER, PATH
from airflow_dynamic_tables.plugins.page.views import VIEWS
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.plugins.page.conftest import DEFINITIONS, Ask, asking
from tests.support.pyarrow_job import write_numbers
from tests.support.statsd import statsd_server

TABLE = "lake.sales.numbers"
OPEN = "/v3/openapi.json"
"""The only route without a login; it is the same in every installation."""


def every_route(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        if isinstance(route, Mount):
            assert route.path == PATH
            yield from (("GET", f"{PATH}/{path.relative_to(FOLDER)}") for path in FOLDER.rglob("*") if path.is_file())
            continue
        assert isinstance(route, APIRoute | Route), "a route of another kind needs a test of its own"
        for method in (route.methods or set()) - {"HEAD"}:
            yield method, route.path.format(table=TABLE, job_id="0" * 32)


def test_every_route_needs_a_login_and_every_change_a_right_and_our_origin(app: FastAPI, ask: Ask) -> None:
    routes = sorted(every_route(app))
    files = [path for _, path in routes if path.startswith(PATH)]
    assert f"{PATH}/index.html" in files
    assert len([method for method, _ in routes if method == "POST"]) >= 5
    for method, path in routes:
        asked = method, path
        if path == OPEN:
            assert ask(method, path).status_code == 200
            continue
        assert ask(method, path).status_code == 401, asked
        answer = ask(method, path, "VIEWER")
        if method == "GET":
            assert answer.status_code in ((200,) if path in files else (200, 404, 409)), (asked, answer.text)
            continue
        # A request for several tables names them in its body, which is empty here.
        assert answer.status_code == (422 if path == "/v3/dynamic-tables/refresh" else 403), (asked, answer.text)
        for origin in ("https://evil.example.org", "null", None):
            refused = ask(method, path, "ADMIN", origin)
            assert (refused.status_code, "rigin" in refused.json()["detail"]) == (403, True), (asked, origin)


def test_the_list_has_paused_dags(ask: Ask) -> None:
    dag_id = "dynamic_table__lake__sales__numbers"
    with create_session() as session:
        session.add(DagBundleModel(name="dags"))
        session.add(DagModel(dag_id=dag_id, bundle_name="dags", fileloc="f.py", is_paused=True, tags=[]))
    (listed,) = ask("GET", "/v3/dynamic-tables", "VIEWER").json()["tables"]
    assert (listed["dagPaused"], listed["state"]) == (True, "PAUSED")
    delay = ask("GET", f"/v3/dynamic-tables/{TABLE}/delay", "VIEWER").json()
    assert (delay["cause"], delay["turn"]) == ("PAUSED", f"A user unpauses the DAG of {TABLE}.")
    with create_session() as session:
        session.delete(session.get(DagModel, dag_id))
    assert ask("GET", "/v3/dynamic-tables", "VIEWER").json()["tables"][0]["state"] == "NO_VERSION"


def test_a_rollback_is_counted(manager: SimpleAuthManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text(DEFINITIONS)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__DEFINITIONS", str(path))
    (table,) = load_definitions(path).tables.values()
    with DynamicTableCatalogHook().get_conn() as workspace:
        for day in (1, 2):
            run(workspace, RefreshRequest(table, {}, datetime(2024, 1, day, tzinfo=UTC), f"t{day}", "test"), write_numbers)
    with statsd_server(monkeypatch) as received:
        app = open_gateway(FastAPI())
        answer = asking(app, manager)("POST", f"/v3/dynamic-tables/{TABLE}/rollback", "ADMIN")
        app.state.gateway.workspaces.close()
        lines = received()
    assert (answer.status_code, answer.json()["number"]) == (200, 3), answer.text
    assert "airflow.dynamic_tables.writes.lake__sales__numbers.ROLLBACK.committed:1|c" in lines


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_files_cannot_be_changed(ask: Ask, method: str) -> None:
    assert ask(method, f"{PATH}/index.html", "ADMIN").status_code == 405


@pytest.mark.parametrize("path", ["", "/", "/none.html", "/../files.py", "/%2e%2e/files.py", "/vendor", "/..%2f..%2fnotes.py"])
def test_there_are_no_other_files(ask: Ask, path: str) -> None:
    answer = ask("GET", f"{PATH}{path}", "ADMIN")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert ask("GET", f"{PATH}{path}").status_code == 401, "not even that"


def test_browsers_run_nothing_but_our_files(ask: Ask) -> None:
    answer = ask("GET", f"{PATH}/index.html", "VIEWER")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["style-src"], policy["frame-ancestors"]) == ("'self'",) * 3
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_files_are_cached_for_one_user_until_they_change(ask: Ask) -> None:
    answer = ask("GET", f"{PATH}/style.css", "VIEWER")
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["etag"]


def test_a_closed_gateway_has_no_route() -> None:
    async def ask_closed() -> list[httpx.Response]:
        airflow = FastAPI()
        airflow.mount(PREFIX, Gateway(is_open=False))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(airflow), base_url="http://test") as client:
            paths = ("/v3/dynamic-tables", OPEN, f"{PATH}/index.html", "/v3/jobs", "/v3/dynamic-tables/a.b.c/refresh")
            return [await client.request(method, path) for path in paths for method in ("GET", "POST")]

    assert {answer.status_code for answer in asyncio.run(ask_closed())} == {404}


def test_airflow_shows_files_that_exist() -> None:
    for view in VIEWS:
        for name in ("href", "icon", "icon_dark_mode"):
            path, _, _ = view[name].partition("?")
            assert f"/{path}".startswith(f"{PATH}/"), "relative, so that it is below the prefix of Airflow"
            assert (FOLDER / path.removeprefix("v3/page/")).is_file()
    assert [view["destination"] for view in VIEWS] == ["nav", "dag"]
