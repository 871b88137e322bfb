"""The gateway with the page, as Airflow's api-server has it, with Airflow's own logins and rights."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator

import httpx
import pytest
from airflow import models, settings
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.base import Base
from fastapi import FastAPI
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from airflow_dynamic_tables.plugins.gateway.opening import open_gateway

DEFINITIONS = """
defaults: {catalog: lake, database: sales}
dynamic_tables: [{name: numbers, freshness: 1 day, query: SELECT 1 AS x}]
"""

BODIES: dict[str, dict[str, object]] = {"rollback": {"version": 1}, "publish": {"token": "t"}, "abort": {"token": "t"}}
"""Bodies that routes need; the others accept an empty one."""

ORIGIN = "http://airflow.example"

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleAuthManager]:
    """Airflow's own auth manager, on a metadata database in memory."""
    home = tmp_path_factory.mktemp("page")
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    models.import_all_models()
    Base.metadata.create_all(engine)
    (home / "tables.yaml").write_text(DEFINITIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "Session", sessionmaker(engine))
        patch.setenv("AIRFLOW_HOME", str(home))
        patch.setenv("AIRFLOW__DYNAMIC_TABLES__DEFINITIONS", str(home / "tables.yaml"))
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", secrets.token_hex(64))
        manager = SimpleAuthManager()
        patch.setattr(airflow_app._AuthManagerState, "instance", manager)
        yield manager


@pytest.fixture(scope="module")
def app(manager: SimpleAuthManager) -> Iterator[FastAPI]:  # noqa: ARG001 - it is asked for logins
    app = open_gateway(FastAPI())
    yield app
    app.state.gateway.workspaces.close()


@pytest.fixture(scope="module")
def ask(app: FastAPI, manager: SimpleAuthManager) -> Ask:
    """Send a request with the cookie of a user with a role; without one, anonymously."""
    return asking(app, manager)


def asking(app: FastAPI, manager: SimpleAuthManager) -> Ask:
    """Return a function that sends a request to an application, see the fixture ``ask``."""
    tokens = {role: manager.generate_jwt(SimpleAuthManagerUser(username=role.lower(), role=role)) for role in ("VIEWER", "ADMIN")}

    def send(method: str, path: str, role: str | None = None, origin: str | None = ORIGIN) -> httpx.Response:
        async def exchange() -> httpx.Response:
            cookies = {"_token": tokens[role]} if role else {}
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, cookies=cookies) as client:
                headers = {"origin": origin} if origin else {}
                body = BODIES.get(path.rpartition("/")[2], {}) if method == "POST" else None
                return await client.request(method, path, json=body, headers=headers)

        return asyncio.run(exchange())

    return send
