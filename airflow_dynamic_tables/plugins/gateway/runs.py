"""Airflow's REST API, called within its own api-server: without network or address, with the caller's permissions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from anyio import from_thread
from sqlalchemy import select
from starlette.types import ASGIApp

from airflow_dynamic_tables.api.access import Caller, Refresher
from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    SchedulerError,
    SchedulerUnavailableError,
)
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.operators.run_arguments import PERIODIC
from airflow_dynamic_tables.schedulers.airflow import AirflowApi
from airflow_dynamic_tables.schedulers.http import Address
from airflow_dynamic_tables.services.workspace import Workspace

AT_ONCE = 8
"""Most concurrent requests of the gateway.

Each may occupy two of an api-server's 40 threads: its own, and one for its call to Airflow. This prevents deadlocks between
threads, and leaves threads for Airflow's own pages if catalogs hang.
"""

_ADDRESS = Address("Airflow", "the login of the caller", "http://airflow")


class _InProcessTransport(httpx.BaseTransport):
    """Transport from worker threads of a server to an application on the event loop of that server."""

    def __init__(self, application: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(application, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return from_thread.run(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(await answer.aread()))


def airflow_as(token: str, airflow: ASGIApp) -> AirflowApi:
    """Return a client of Airflow's API with the caller's token, so that Airflow enforces the caller's permissions."""
    return AirflowApi(_ADDRESS, Connection(extra={"token": token}), _InProcessTransport(airflow))


WorkflowOf = Callable[[Workspace, TableIdentifier], str]
"""Returns the DAG id of a table."""

_ENDS = {
    "success": WorkState.SUCCEEDED,
    "skipped": WorkState.SKIPPED,
    "failed": WorkState.FAILED,
    "upstream_failed": WorkState.FAILED,
    "removed": WorkState.LOST,
}


@dataclass(frozen=True, slots=True)
class AirflowRuns(Refresher):
    """Refreshes by DAG runs: a job is one run of each DAG of its tables, and the run ids contain the job id.

    ``airflow`` is the application in which the gateway is mounted.
    """

    airflow: ASGIApp
    workflow_of: WorkflowOf

    def start(self, workspace: Workspace, caller: Caller, job: Job) -> None:
        """Trigger the runs as the caller. An existing run with the id belongs to this job.

        :raises ForbiddenError: if Airflow denies access; nothing was started.
        :raises ConflictError: if a run would not start; nothing was started.
        """
        of_dag: dict[str, list[TableIdentifier]] = defaultdict(list)
        for refresh in job.refreshes:
            of_dag[self.workflow_of(workspace, refresh.table)].append(refresh.table)
        token = caller.user.token
        if token is None:
            raise ForbiddenError("A refresh needs a login of its own; send a token of Airflow's as Authorization: Bearer.")
        with airflow_as(token, self.airflow) as airflow:
            confs = {dag_id: _conf(airflow, dag_id, tables, job.wish) for dag_id, tables in of_dag.items()}
            for number, (dag_id, conf) in enumerate(confs.items()):
                cluster = {"clusterType": "airflow", "dagId": dag_id, "runId": _run_id(job)}
                # Recorded first, so that the run is found if this process is killed.
                for table in of_dag[dag_id]:
                    workspace.ledger.change_job(job.id, table, cluster=cluster)
                error = _trigger(airflow, dag_id, conf, job)
                if error is not None and number == 0:
                    raise error
                became = WorkState.RUNNING if error is None else WorkState.FAILED
                for table in of_dag[dag_id]:
                    workspace.ledger.change_job(job.id, table, state=became, error=str(error) if error else None)

    def look(self, workspace: Workspace, job: Job) -> None:
        """Update the states of the runs. A run that Airflow no longer has is lost."""
        open_ones = [refresh for refresh in job.refreshes if refresh.cluster_info and not refresh.state.is_end]
        if not open_ones:
            return
        runs = _runs(_run_id(job), {refresh.cluster_info["dagId"] for refresh in open_ones})
        for refresh in open_ones:
            run = runs.get(refresh.cluster_info["dagId"])
            if run is not None:
                _write(workspace, job, refresh, run)
            elif refresh.state is WorkState.RUNNING:
                error = "Airflow does not have its run any more."
                workspace.ledger.change_job(job.id, refresh.table, state=WorkState.LOST, error=error)


class _Task(NamedTuple):
    token: str
    state: str | None
    has_begun: bool


class _Run(NamedTuple):
    """A run, and the current try of each task."""

    state: str
    tasks: dict[str, _Task]


def _run_id(job: Job) -> str:
    return f"rest__{job.id}"


def _conf(airflow: AirflowApi, dag_id: str, tables: Collection[TableIdentifier], wish: RefreshWish) -> dict[str, Any]:
    with _refusals():
        dag = airflow.dag(dag_id)
        if dag is None or dag.is_stale:
            raise ConflictError(f"Airflow has no DAG {dag_id}, or not any more; see its import errors.")
        is_shared = airflow.refreshes(dag_id) > 1
    if dag.is_paused:
        raise ConflictError(f"DAG {dag_id} is paused, so a run of it would wait; unpause it, or resume the table, first.")
    return {
        **({"schedule_time": wish.schedule_time} if wish.schedule_time else {}),
        **({"partition": wish.partition} if wish.partition else {}),
        **({"full_refresh": True} if wish.full_refresh else {}),
        **({"even_if_suspended": True} if wish.is_forced else {}),
        **({PERIODIC: True} if wish.is_periodic else {}),
        **({"tables": [str(table) for table in tables]} if is_shared else {}),
    }


def _trigger(airflow: AirflowApi, dag_id: str, conf: dict[str, Any], job: Job) -> ForbiddenError | ConflictError | None:
    """Trigger a run, and return the error if Airflow rejects it. An unknown outcome is resolved when the job is read."""
    try:
        with _refusals(), suppress(SchedulerUnavailableError):
            airflow.trigger(dag_id, conf, _run_id(job))
    except (ForbiddenError, ConflictError) as error:
        return error
    return None


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ForbiddenError(str(error)) from error
    except SchedulerError as error:
        raise ConflictError(str(error)) from error


def _runs(run_id: str, dag_ids: Collection[str]) -> dict[str, _Run]:
    runs = select(DagRun.dag_id, DagRun.state).where(DagRun.run_id == run_id, DagRun.dag_id.in_(dag_ids))
    tasks = select(TaskInstance.dag_id, TaskInstance.task_id, TaskInstance.id, TaskInstance.state, TaskInstance.pid).where(
        TaskInstance.run_id == run_id, TaskInstance.dag_id.in_(dag_ids)
    )
    with create_session() as session:
        found = {dag_id: _Run(state, {}) for dag_id, state in session.execute(runs)}
        for dag_id, task_id, token, state, process in session.execute(tasks):
            if dag_id in found:  # otherwise created after the first query
                found[dag_id].tasks[task_id] = _Task(str(token), state, process is not None)
    return found


def _write(workspace: Workspace, job: Job, refresh: JobRefresh, run: _Run) -> None:
    task = run.tasks.get(refresh.table.task_id) or run.tasks.get("refresh")
    if task is None:
        return
    state, error = _outcome(workspace, run, task)
    workspace.ledger.change_job(job.id, refresh.table, token=task.token, state=state, error=error)


def _outcome(workspace: Workspace, run: _Run, task: _Task) -> tuple[WorkState, str | None]:
    """Return the state of a refresh, and its error.

    Airflow marks the unfinished tasks of a run as skipped when a user marks the run as failed, or it reaches its time limit.
    """
    is_skipped_by_run = task.state == "skipped" and run.state == "failed"
    if is_skipped_by_run and not task.has_begun:
        return WorkState.FAILED, "Its run was marked as failed, or failed, before its task began."
    state = _ENDS.get(task.state or "", WorkState.LOST if run.state in ("success", "failed") else WorkState.RUNNING)
    if state not in (WorkState.FAILED, WorkState.LOST) and not is_skipped_by_run:
        return state, None
    recorded = workspace.ledger.get_refresh(task.token)
    if is_skipped_by_run:
        if recorded is None or recorded.state in (RefreshState.SKIPPED, RefreshState.SUCCEEDED):
            return state, None
        state = WorkState.FAILED
    return state, recorded.error if recorded and recorded.error else f"Its task is {task.state}; the log in Airflow says why."
