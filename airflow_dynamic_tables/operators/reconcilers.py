"""Callbacks of the refresh task: they reconcile by token and count failures, but never decide whether a version is committed.

Airflow may run them late, twice or not at all, in the task process or in the DAG processor. Each is therefore idempotent, depends
on little but the token, and never raises. The maintenance DAG and the next refresh handle missed callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from airflow.sdk import DagRunState, TaskInstanceState

from airflow_dynamic_tables.operators.reporting import UpstreamFailedError
from airflow_dynamic_tables.operators.run_arguments import BY_ITSELF, came_by_itself, owner_of, was_cleared
from airflow_dynamic_tables.services.lifecycle.suspending import note_failure
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import is_current
from airflow_dynamic_tables.services.writes.settling import abort, reconcile

log = logging.getLogger(__name__)


def complete_refresh(context: Mapping[str, Any]) -> None:
    """On success: update the ledger if it lacks the committed version."""
    _reconcile(context, reconcile)


def abort_refresh(context: Mapping[str, Any]) -> None:
    """On failure or retry: abort the stage of that try, unless it was committed."""
    reason = context.get("exception") or "the Airflow task failed"

    def act(workspace: Workspace, token: str) -> None:
        if not _is_at_work_again(context, workspace, token):
            abort(workspace, token, str(reason))

    _reconcile(context, act)


def count_failure(context: Mapping[str, Any]) -> None:
    """On final failure: count a scheduled run; too many in a row suspend the table.

    A run counts once, regardless of its tries, but not if a parent caused the failure, which counts for the parent, or if a user
    cleared the task.
    """

    def act(workspace: Workspace, _: str) -> None:
        ti, error = context["ti"], context.get("exception")
        counts = not was_cleared(context) and not isinstance(error, UpstreamFailedError)
        why = str(error or "the Airflow task failed")
        note_failure(workspace, context["task"].table, owner_of(ti.dag_id, ti.run_id, ti.task_id), why, counts=counts)

    if came_by_itself(context):
        _reconcile(context, act)


def count_last_failure(context: Mapping[str, Any], workspace: Workspace) -> None:
    """Count the previous run if it failed, because a task killed by the system runs no callbacks. Idempotent; never raises."""
    if not came_by_itself(context):
        return
    try:
        ti = context["ti"]
        last = ti.get_previous_dagrun()
        if last is None or last.run_type not in BY_ITSELF or last.state != DagRunState.FAILED:
            return
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[last.run_id]).get(last.run_id, {})
        if TaskInstanceState.FAILED in states.values():
            run = owner_of(ti.dag_id, last.run_id, ti.task_id)
            note_failure(workspace, context["task"].table, run, "the Airflow task was killed")
    except Exception:
        log.warning("It is not known how the previous run ended; if it failed, it does not count.", exc_info=True)


def beside_ours(given: Mapping[str, Any], *, counts: bool = True) -> dict[str, list[Callable[..., Any]]]:
    """Return our callbacks after those given to a task, by argument.

    Ours come last, because Airflow stops all callbacks after a few seconds. The next refresh makes up for ours, but not for
    notifications.

    :param counts: whether failures count, as for dynamic tables.
    """
    ours = {name: [one for one in callbacks if counts or one is not count_failure] for name, callbacks in _OURS.items()}
    return {name: [*_listed(given.get(name)), *callbacks] for name, callbacks in ours.items()}


def _listed(callbacks: Any) -> list[Callable[..., Any]]:
    return list(callbacks) if isinstance(callbacks, Collection) else [callbacks] if callbacks else []


def _reconcile(context: Mapping[str, Any], act: Callable[[Workspace, str], object]) -> None:
    token = None
    try:
        token = str(context["ti"].id)
        with context["task"].catalog_hook().get_conn() as workspace:
            act(workspace, token)
    except Exception:
        log.warning("Could not reconcile refresh %s; the next refresh or the maintenance DAG does it.", token, exc_info=True)


def _is_at_work_again(context: Mapping[str, Any], workspace: Workspace, token: str) -> bool:
    """Return whether the stage belongs to a later try than the failed one.

    A cleared task gets the id of its next try immediately. The DAG processor receives the end of the earlier try with that id,
    possibly while the next one is running.
    """
    stage = workspace.ledger.get_stage(token)
    if stage is None or is_current(stage.process):
        return False
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id]).get(ti.run_id, {})
    return TaskInstanceState.RUNNING in states.values()


_OURS = {
    "on_success_callback": (complete_refresh,),
    "on_failure_callback": (abort_refresh, count_failure),
    "on_retry_callback": (abort_refresh,),
}
