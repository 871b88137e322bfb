"""A stand-in for Airflow's REST API: it keeps what it is told of DAGs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from airflow_dynamic_tables.clients.connections import Connection
from tests.support.described_server import DescribedServer, Request, described_server

_WORD = {"type": "string"}
_LOGIN = {
    "type": "object",
    "properties": {"username": _WORD, "password": _WORD},
    "required": ["username", "password"],
    "additionalProperties": False,
}


@cache
def airflow_description() -> dict[str, Any]:
    """The description that the installed Airflow publishes, and the path of its login, which it describes elsewhere."""
    text = files("airflow.api_fastapi.core_api.openapi").joinpath("v2-rest-api-generated.yaml").read_text()
    description: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    description["paths"]["/auth/token"] = {
        "post": {"operationId": "log_in", "requestBody": {"content": {"application/json": {"schema": _LOGIN}}}},
        "get": {"operationId": "log_in_as_everybody"},
    }
    return description


@dataclass
class StandIn:
    """An Airflow with DAGs: by id whether each is paused, and the names of the operators of its tasks."""

    server: DescribedServer = field(default_factory=lambda: DescribedServer(""))
    paused: dict[str, bool] = field(default_factory=dict)
    operators: dict[str, list[str]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    runs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    connection: Connection = field(default_factory=lambda: Connection(login="me", password="s3cr3t-word"))

    def add(self, dag_id: str, *operators: str, is_paused: bool = False) -> None:
        self.paused[dag_id] = is_paused
        self.operators[dag_id] = list(operators)

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.operation.startswith("log_in"):
            return self._logged_in(request)
        if request.operation == "get_version":
            return 200, {"version": "3.3.2", "git_version": None}
        if request.headers.get("authorization") != "Bearer t0ken-of-me":
            return 401, {"detail": f"Invalid token {request.headers.get('authorization')}"}
        if request.operation in self.forbidden:
            return 403, {"detail": "Forbidden"}
        if request.operation == "get_dags":
            return 200, self._listed(request)
        dag_id = request.path["dag_id"]
        if dag_id not in self.paused:
            return 404, {"detail": f"The Dag with ID: `{dag_id}` was not found"}
        return self._of_dag(request, dag_id)

    def _logged_in(self, request: Request) -> tuple[int, Any]:
        if request.body == {"username": "me", "password": "s3cr3t-word"}:
            return 201, {"access_token": "t0ken-of-me"}
        return 401, {"detail": [{"type": "x", "loc": ["body"], "msg": "Invalid credentials", "input": request.body}]}

    def _of_dag(self, request: Request, dag_id: str) -> tuple[int, Any]:
        if request.operation == "delete_dag":
            del self.paused[dag_id]
            return 204, None
        if request.operation == "get_tasks":
            return 200, {"tasks": [{"operator_name": name} for name in self.operators[dag_id]], "total_entries": 1}
        if request.operation == "patch_dag":
            self.paused[dag_id] = request.body["is_paused"]
        if request.operation == "trigger_dag_run":
            run_id = request.body.get("dag_run_id", "manual__1")
            if (dag_id, run_id) in self.runs:
                return 409, {"detail": "Dag Run already exists"}
            self.runs[dag_id, run_id] = {"dag_run_id": run_id, "state": "queued", "conf": request.body["conf"]}
            return 200, self.runs[dag_id, run_id]
        if request.operation == "get_dag_run":
            run = self.runs.get((dag_id, request.path["dag_run_id"]))
            return (200, run) if run else (404, {"detail": "not found"})
        return 200, self._shown(dag_id)

    def _shown(self, dag_id: str) -> dict[str, Any]:
        return {"dag_id": dag_id, "is_paused": self.paused[dag_id], "is_stale": dag_id in self.stale}

    def _listed(self, request: Request) -> dict[str, Any]:
        assert (request.query["tags"], request.query["exclude_stale"]) == ("dynamic-table", "false")
        first = int(request.query["offset"])
        page = sorted(self.paused)[first : first + int(request.query["limit"])]
        return {"dags": [self._shown(dag_id) for dag_id in page], "total_entries": len(self.paused)}

    def connections(self, conn_id: str) -> Connection:
        assert conn_id == "dynamic_tables_airflow"
        return replace(self.connection, host=self.server.url)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    airflow = StandIn()
    with described_server(airflow_description(), airflow.answer) as server:
        airflow.server = server
        yield airflow
