"""Airflow's public REST API, version 2: what this package asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.exceptions import WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.base import DAG_TAG
from airflow_dynamic_tables.schedulers.http import Address, Answer, BaseTransport, HttpServer

REFRESHES = ("DynamicTableRefreshOperator", "ContinuousRefreshOperator")
"""Operators of tasks that refresh a table."""


_PAGE = 100
"""DAGs that one answer lists; Airflow gives no more by default."""


@dataclass(frozen=True, slots=True)
class Dag:
    """A DAG as Airflow has it; ``is_stale``: the definitions make it no more."""

    dag_id: str
    is_paused: bool
    is_stale: bool


@dataclass(frozen=True, slots=True)
class DagRun:
    """A run of a DAG: its id and its state, such as ``queued``, ``running``, ``success`` or ``failed``."""

    run_id: str
    state: str


class AirflowApi:
    """An Airflow by its REST API; a context manager. Logs in with the first request.

    The ``token`` in the extra of the connection is sent as it is; else its login and password are exchanged for one; without
    either, Airflow is asked for the token that it gives to everybody when it is so configured.

    All methods raise :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when Airflow cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when it does not let us in or do that, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when it says no.

    :param transport: as of :class:`~airflow_dynamic_tables.schedulers.http.HttpServer`.
    """

    def __init__(self, address: Address, connection: Connection, transport: BaseTransport | None = None) -> None:
        self._connection = connection
        self._server = HttpServer(address, [connection.password], transport)
        self._is_in = False

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.address.url

    def dag(self, dag_id: str) -> Dag | None:
        """A DAG; ``None`` when Airflow has none of that id."""
        answer = self._ask("GET", f"/dags/{_quoted(dag_id)}")
        if answer.status == 404:
            self._check_address()
            return None
        return self._read_dag(self._server.expect(answer, f"show the DAG {dag_id}"))

    def dags(self) -> list[Dag]:
        """All DAGs that are made of definitions."""
        found: list[Dag] = []
        while True:
            query = {"tags": DAG_TAG, "exclude_stale": "false", "limit": str(_PAGE), "offset": str(len(found))}
            body = self._server.expect(self._ask("GET", "/dags", query), "list the DAGs of dynamic tables")
            page = body.get("dags") if isinstance(body, Mapping) else None
            if not isinstance(page, list):
                raise self._server.misunderstood("which DAGs there are")
            found += map(self._read_dag, page)
            if not page or len(found) >= int(body.get("total_entries") or 0):
                return found

    def set_paused(self, dag_id: str, is_paused: bool) -> None:
        """Pause a DAG, or unpause it.

        :raises WorkflowNotFoundError: when Airflow has no such DAG.
        """
        verb = "pause" if is_paused else "unpause"
        answer = self._ask("PATCH", f"/dags/{_quoted(dag_id)}", {"update_mask": "is_paused"}, {"is_paused": is_paused})
        dag = self._read_dag(self._found(answer, dag_id, f"{verb} the DAG {dag_id}"))
        if dag.is_paused is not is_paused:
            raise self._server.misunderstood(f"that it did {verb} the DAG {dag_id}")

    def refreshes(self, dag_id: str) -> int:
        """How many tasks of a DAG refresh a table each.

        :raises WorkflowNotFoundError: when Airflow has no such DAG.
        """
        body = self._found(self._ask("GET", f"/dags/{_quoted(dag_id)}/tasks"), dag_id, f"list the tasks of the DAG {dag_id}")
        tasks = body.get("tasks") if isinstance(body, Mapping) else None
        if not isinstance(tasks, list):
            raise self._server.misunderstood(f"what the tasks of the DAG {dag_id} are")
        return sum(isinstance(task, Mapping) and task.get("operator_name") in REFRESHES for task in tasks)

    def trigger(self, dag_id: str, conf: Mapping[str, Any], run_id: str | None = None) -> DagRun:
        """Begin a run of a DAG, as by hand.

        :param run_id: when Airflow has a run of that id already, it is that one: a request may be sent twice.
        :raises WorkflowNotFoundError: when Airflow has no such DAG.
        """
        body = {"logical_date": None, "conf": dict(conf), **({"dag_run_id": run_id} if run_id else {})}
        answer = self._ask("POST", f"/dags/{_quoted(dag_id)}/dagRuns", body=body)
        if answer.status == 409 and run_id and (run := self.run(dag_id, run_id)):
            return run
        return self._read_run(self._found(answer, dag_id, f"trigger the DAG {dag_id}"))

    def run(self, dag_id: str, run_id: str) -> DagRun | None:
        """A run of a DAG; ``None`` when Airflow has none of that id."""
        answer = self._ask("GET", f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}")
        if answer.status == 404:
            self._check_address()
            return None
        return self._read_run(self._server.expect(answer, f"show the run {run_id} of the DAG {dag_id}"))

    def delete(self, dag_id: str) -> bool:
        """Delete what Airflow keeps of a DAG and its runs, and whether there was anything."""
        answer = self._ask("DELETE", f"/dags/{_quoted(dag_id)}")
        if answer.status == 404:
            self._check_address()
            return False
        self._server.expect(answer, f"delete the DAG {dag_id}")
        return True

    def close(self) -> None:
        """Let go of the connections."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        if not self._is_in:
            self._server.let_in("Authorization", f"Bearer {self._token()}")
            self._is_in = True
        return self._server.send(method, f"/api/v2{path}", query=query, body=body)

    def _token(self) -> str:
        if given := self._connection.extra.get("token"):
            return given
        login = self._connection.login
        credentials = {"username": login, "password": self._connection.password or ""} if login else None
        answer = self._server.send("POST" if credentials else "GET", "/auth/token", body=credentials)
        if answer.status == 404:
            raise self._server.misunderstood("how to log in")
        body = self._server.expect(answer, "log in")
        token = body.get("access_token") if isinstance(body, Mapping) else None
        if not isinstance(token, str) or not token:
            raise self._server.misunderstood("which token to use")
        return token

    def _found(self, answer: Answer, dag_id: str, what: str) -> Any:
        if answer.status == 404:
            self._check_address()
            raise WorkflowNotFoundError(
                f"Airflow at {self.url} has no DAG {dag_id}; it makes one when it has read the definitions, unless they are "
                "wrong or somewhere else."
            )
        return self._server.expect(answer, what)

    def _check_address(self) -> None:
        """Tell a DAG that is missing from an address that leads elsewhere: every web server knows status 404.

        :raises SchedulerError: when this is no Airflow.
        """
        answer = self._server.send("GET", "/api/v2/version")
        if answer.status != 200 or not (isinstance(answer.body, Mapping) and "version" in answer.body):
            raise self._server.misunderstood("which version of Airflow it is")

    def _read_dag(self, body: Any) -> Dag:
        if not (isinstance(body, Mapping) and isinstance(body.get("dag_id"), str) and isinstance(body.get("is_paused"), bool)):
            raise self._server.misunderstood("what the DAG is like")
        return Dag(body["dag_id"], body["is_paused"], bool(body.get("is_stale")))

    def _read_run(self, body: Any) -> DagRun:
        if not (isinstance(body, Mapping) and isinstance(body.get("dag_run_id"), str) and isinstance(body.get("state"), str)):
            raise self._server.misunderstood("what became of the run")
        return DagRun(body["dag_run_id"], body["state"])


def _quoted(name: str) -> str:
    return quote(name, safe="")
