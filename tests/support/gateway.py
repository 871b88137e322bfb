"""A REST gateway that listens on loopback, for tests and benchmarks: everything of it is real but who may do what."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.requests import Request

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Right
from airflow_dynamic_tables.api.app import make_app
from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import UnauthenticatedError
from airflow_dynamic_tables.ledger.jobs import Job
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace


@dataclass
class Rights:
    """Whoever says a name is that person; ``refused`` says who may not do what with which table."""

    refused: set[tuple[str, Right, str]] = field(default_factory=set)

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        return {"bearer": {"type": "http", "scheme": "bearer"}}

    async def caller(self, request: Request) -> Caller:
        name = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not name:
            raise UnauthenticatedError("Say who you are.")
        return Caller(name)

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:
        return {one.identifier for one in tables if (caller.name, right, one.identifier.table) not in self.refused}


@dataclass
class Waiting:
    """A refresher that only writes down what it was asked for; ``refuses`` is raised instead."""

    started: list[Job] = field(default_factory=list)
    refuses: Exception | None = None

    def start(self, workspace: Workspace, caller: Caller, job: Job) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.started.append(job)
        for refresh in job.refreshes:
            workspace.ledger.change_job(job.id, refresh.table, cluster={"clusterType": "nobody", "clusterId": caller.name})

    def look(self, workspace: Workspace, job: Job) -> None:
        """Nothing becomes of it by itself."""


@dataclass
class Served:
    client: httpx.Client
    settings: WorkspaceSettings
    definitions: Path
    rights: Rights
    refresher: Waiting

    def workspace(self) -> Workspace:
        return open_workspace(self.settings)


@contextmanager
def served(home: Path, definitions: Path, state: Path | None = None, access: Access | None = None) -> Iterator[Served]:
    """A gateway for the definitions of a folder, asked as ``ann``.

    :param state: an SQLite state at the newest schema; without one it makes its own.
    :param access: who may do what, instead of :class:`Rights`.
    """
    catalogs = home / "catalogs.yaml"
    catalogs.write_text("catalogs:\n- {name: lake, type: sql, is-default: true}\n")
    paths = {"AIRFLOW_HOME": home, "DYNAMIC_TABLES_DEFINITIONS": definitions, "DYNAMIC_TABLES_CATALOGS": catalogs}
    environ = {name: str(path) for name, path in paths.items()}
    if state is not None:
        environ["DYNAMIC_TABLES_DATABASE_URL"] = f"sqlite:///{state}"
    settings = embedded_settings(environ)
    rights, refresher = Rights(), Waiting()
    gateway = AppComponents.of(
        lambda: open_workspace(settings),
        lambda: open_project(environ=environ) if definitions.exists() else None,
        access or rights,
        refresher,
    )
    headers = {"Authorization": "Bearer ann"}
    with listening(gateway) as address, httpx.Client(base_url=address, headers=headers, timeout=120) as client:
        yield Served(client, settings, definitions, rights, refresher)


@contextmanager
def listening(gateway: AppComponents) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(make_app(gateway), port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, name="gateway")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the gateway did not start")
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
