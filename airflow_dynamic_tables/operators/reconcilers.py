"""Callbacks of the refresh task. They reconcile by token, count failures, and never decide over a version.

Airflow runs them late, twice or not at all, in the task process or in the DAG processor, so each is idempotent, knows little
but the token and never raises. What no callback saw is swept by the maintenance DAG and by the next refresh.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from airflow.sdk import DagRunState, TaskInstanceState

from airflow_dynamic_tables.operators.reporting import UpstreamFailedError
from airflow_dynamic_tables.operators.run_arguments import BY_ITSELF, came_by_itself, owner_of, was_cleared
from airflow_dynamic_tables.services.changing.failing import note_failure
from airflow_dynamic_tables.services.stages.processes import is_current
from airflow_dynamic_tables.services.stages.settling import abort, reconcile
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def complete_refresh(context: Mapping[str, Any]) -> None:
    """On success: put the ledger right if the commit landed and the ledger does not know."""
    _reconcile(context, reconcile)


def abort_refresh(context: Mapping[str, Any]) -> None:
    """On failure or retry: give up the stage of that try, unless its commit landed."""
    reason = context.get("exception") or "the Airflow task failed"

    def act(workspace: Workspace, token: str) -> None:
        if not _is_at_work_again(context, workspace, token):
            abort(workspace, token, str(reason))

    _reconcile(context, act)


def count_failure(context: Mapping[str, Any]) -> None:
    """On failure for good: count a scheduled run; one too many in a row suspends the table.

    A run counts once, whatever became of its tries, but not when a parent is to blame, which is counted itself, nor when somebody
    cleared the task to see for themselves.
    """

    def act(workspace: Workspace, _: str) -> None:
        ti, error = context["ti"], context.get("exception")
        counts = not was_cleared(context) and not isinstance(error, UpstreamFailedError)
        why = str(error or "the Airflow task failed")
        note_failure(workspace, context["task"].table, owner_of(ti.dag_id, ti.run_id, ti.task_id), why, counts=counts)

    if came_by_itself(context):
        _reconcile(context, act)


def count_last_failure(context: Mapping[str, Any], workspace: Workspace) -> None:
    """Count the run before this one when it failed: a task that the system killed has no callbacks. Idempotent; never raises."""
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
        log.warning("Nobody can say how the run before this one ended; if it failed, it does not count.", exc_info=True)


def beside_ours(given: Mapping[str, Any], *, counts: bool = True) -> dict[str, list[Callable[..., Any]]]:
    """Our callbacks after those that a task is given, by argument.

    Ours come last: Airflow stops them all after seconds, and what ours do is done by the next refresh, too; a message to
    somebody has no second chance.

    :param given: arguments of the task; a callback or several.
    :param counts: whether failures count, as those of a dynamic table do.
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
    """Whether the stage is of a later try than the one that failed.

    A task that is cleared gets the id of its next try at once, and the DAG processor is told of the end of the earlier one under
    that id, perhaps when the next one is at work.
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
