"""Airflow as a scheduler, through its public REST API, version 2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote

from airflow_dynamic_tables.clients.connections import Connection, Connections
from airflow_dynamic_tables.exceptions import WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.base import DAG_TAG, Handler, Outcome, Workflow, WorkflowScheduler
from airflow_dynamic_tables.schedulers.http import Address, BaseTransport, HttpAnswer, HttpServer, address_of

REFRESHES = ("DynamicTableRefreshOperator", "ContinuousRefreshOperator")


_PAGE = 100
"""DAGs per page; Airflow returns no more by default."""


@dataclass(frozen=True, slots=True)
class Dag:
    """An Airflow DAG; ``is_stale`` when its definition was removed."""

    dag_id: str
    is_paused: bool
    is_stale: bool


@dataclass(frozen=True, slots=True)
class DagRun:
    """A run of a DAG: its id and its state, such as ``queued``, ``running``, ``success`` or ``failed``."""

    run_id: str
    state: str


class AirflowApi:
    """Client of Airflow's REST API; a context manager. It logs in with the first request.

    The ``token`` in the extra of the connection is sent as it is; otherwise its login and password are exchanged for a token.
    Without either, Airflow is asked for the token that it issues to all clients when so configured.

    All methods raise :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when Airflow cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when access or permission is denied, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when Airflow rejects the request.

    :param transport: as of :class:`~airflow_dynamic_tables.schedulers.http.HttpServer`.
    """

    def __init__(self, address: Address, connection: Connection, transport: BaseTransport | None = None) -> None:
        self._connection = connection
        self._server = HttpServer(address, [connection.password], transport)
        self._is_in = False

    @property
    def url(self) -> str:
        """The address of Airflow."""
        return self._server.address.url

    def dag(self, dag_id: str) -> Dag | None:
        """Return a DAG; ``None`` when it does not exist."""
        answer = self._ask("GET", f"/dags/{_quoted(dag_id)}")
        if answer.status == 404:
            self._check_address()
            return None
        return self._read_dag(self._server.expect(answer, f"show the DAG {dag_id}"))

    def dags(self) -> list[Dag]:
        """Return all DAGs generated from definitions."""
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
        """Return the number of tasks of a DAG that refresh a table.

        :raises WorkflowNotFoundError: when Airflow has no such DAG.
        """
        body = self._found(self._ask("GET", f"/dags/{_quoted(dag_id)}/tasks"), dag_id, f"list the tasks of the DAG {dag_id}")
        tasks = body.get("tasks") if isinstance(body, Mapping) else None
        if not isinstance(tasks, list):
            raise self._server.misunderstood(f"what the tasks of the DAG {dag_id} are")
        return sum(isinstance(task, Mapping) and task.get("operator_name") in REFRESHES for task in tasks)

    def trigger(self, dag_id: str, conf: Mapping[str, Any], run_id: str | None = None) -> DagRun:
        """Trigger a manual run of a DAG.

        :param run_id: makes the request idempotent: an existing run with that id is returned.
        :raises WorkflowNotFoundError: when Airflow has no such DAG.
        """
        body = {"logical_date": None, "conf": dict(conf), **({"dag_run_id": run_id} if run_id else {})}
        answer = self._ask("POST", f"/dags/{_quoted(dag_id)}/dagRuns", body=body)
        if answer.status == 409 and run_id and (run := self.run(dag_id, run_id)):
            return run
        return self._read_run(self._found(answer, dag_id, f"trigger the DAG {dag_id}"))

    def run(self, dag_id: str, run_id: str) -> DagRun | None:
        """Return a run of a DAG; ``None`` when it does not exist."""
        answer = self._ask("GET", f"/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}")
        if answer.status == 404:
            self._check_address()
            return None
        return self._read_run(self._server.expect(answer, f"show the run {run_id} of the DAG {dag_id}"))

    def delete(self, dag_id: str) -> bool:
        """Delete Airflow's metadata of a DAG and its runs; return whether there was any."""
        answer = self._ask("DELETE", f"/dags/{_quoted(dag_id)}")
        if answer.status == 404:
            self._check_address()
            return False
        self._server.expect(answer, f"delete the DAG {dag_id}")
        return True

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> HttpAnswer:
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

    def _found(self, answer: HttpAnswer, dag_id: str, what: str) -> Any:
        if answer.status == 404:
            self._check_address()
            raise WorkflowNotFoundError(
                f"Airflow at {self.url} has no DAG {dag_id}; it makes one when it has read the definitions, unless they are "
                "wrong or somewhere else."
            )
        return self._server.expect(answer, what)

    def _check_address(self) -> None:
        """Distinguish a missing DAG from a wrong address, because every web server returns status 404."""
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


CONNECTION = "dynamic_tables_airflow"


_FEW = 5
"""Up to this number, DAGs are requested one by one."""


class Airflow(Protocol):
    """Interface of an Airflow client; :class:`~airflow_dynamic_tables.schedulers.airflow.AirflowApi` uses the REST API."""

    @property
    def url(self) -> str:
        """The address of Airflow."""

    def dag(self, dag_id: str) -> Dag | None:
        """Return a DAG; ``None`` when it does not exist."""

    def dags(self) -> list[Dag]:
        """Return all DAGs generated from definitions."""

    def set_paused(self, dag_id: str, is_paused: bool) -> None:
        """Pause a DAG, or unpause it."""

    def refreshes(self, dag_id: str) -> int:
        """Return the number of tasks of a DAG that refresh a table."""

    def delete(self, dag_id: str) -> bool:
        """Delete Airflow's metadata of a DAG and its runs; return whether there was any."""

    def close(self) -> None:
        """Close the connections."""


class AirflowScheduler(WorkflowScheduler):
    """The DAGs that :func:`~airflow_dynamic_tables.dag_factory.load_dynamic_tables` generates.

    A DAG that also refreshes other tables is neither paused nor unpaused: there, the refresh of a suspended table does
    nothing.
    """

    def __init__(self, api: Airflow) -> None:
        self._api = api

    @classmethod
    def from_connections(cls, connections: Connections) -> Self:
        """Return the scheduler of connection ``dynamic_tables_airflow``."""
        connection = connections(CONNECTION)
        return cls(AirflowApi(address_of("Airflow", CONNECTION, connection), connection))

    def create(self, workflow: Workflow) -> Outcome:
        """Return whether Airflow already has the DAG. Airflow generates it from the definitions, which contain the schedule."""
        dag_id = workflow.workflow_id
        dag = self._api.dag(dag_id)
        if dag is None or dag.is_stale:
            told = f"Airflow does not have the DAG {dag_id} yet; it makes it when it next reads the definitions."
        else:
            told = f"Airflow has the DAG {dag_id}{', which is paused' if dag.is_paused else ''}."
        return Outcome({"schedulerType": "airflow", "endpoint": self._api.url, "workflowId": dag_id}, told)

    def suspend(self, handler: Handler) -> Outcome:
        """Pause the DAG, if it refreshes only this table."""
        return self._set_paused(handler, is_paused=True)

    def resume(self, handler: Handler) -> Outcome:
        """Unpause the DAG, if it refreshes only this table."""
        return self._set_paused(handler, is_paused=False)

    def delete(self, handler: Handler) -> Outcome:
        """Delete Airflow's metadata of the DAG and its runs, unless it also refreshes other tables."""
        dag_id = handler["workflowId"]
        dag = self._api.dag(dag_id)
        if dag is None:
            return Outcome(handler, f"Airflow has no DAG {dag_id}.")
        # A DAG whose definition was removed still lists its last tasks; their tables do not matter.
        if not dag.is_stale and (others := self._api.refreshes(dag_id) - 1) > 0:
            return Outcome(handler, f"The DAG {dag_id} stays: it refreshes {_tables(others)} more.")
        self._api.delete(dag_id)
        return Outcome(handler, f"Airflow has forgotten the DAG {dag_id} and its runs.")

    def paused(self, workflow_ids: Collection[str]) -> dict[str, bool]:
        asked = map(self._api.dag, workflow_ids) if len(workflow_ids) <= _FEW else self._api.dags()
        return {dag.dag_id: dag.is_paused for dag in asked if dag is not None and dag.dag_id in workflow_ids}

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _set_paused(self, handler: Handler, *, is_paused: bool) -> Outcome:
        dag_id = handler["workflowId"]
        verb = "paused" if is_paused else "unpaused"
        if (others := self._api.refreshes(dag_id) - 1) > 0:
            return Outcome(handler, f"The DAG {dag_id} is not {verb}: it refreshes {_tables(others)} more.")
        self._api.set_paused(dag_id, is_paused)
        return Outcome(handler, f"The DAG {dag_id} is {verb}.")


def _tables(count: int) -> str:
    return "one table" if count == 1 else f"{count} tables"
