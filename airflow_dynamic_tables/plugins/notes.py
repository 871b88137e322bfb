"""The note at a run in which nothing was refreshed: Airflow shows such a run green, and lets no task write a note at it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin
from sqlalchemy.orm import object_session

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

NOTE = "Nothing was refreshed: every refresh was skipped. The last line of its log says why, and so does its XCom `skipped`."

_OPERATORS = frozenset({"DynamicTableRefreshOperator", "ContinuousRefreshOperator"})
"""By their names, because the scheduler, which calls this, has no operators."""


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    """Write the note. Airflow calls this for every run of every DAG, in the transaction that ends the run."""
    if object_session(dag_run) is None:
        return  # ``airflow dags test``, which keeps no notes
    tasks: Any = getattr(dag_run.dag, "tasks", ())
    refreshes = {task.task_id for task in tasks if task.task_type in _OPERATORS}
    # Only of ours, because this reads from the database.
    if refreshes and _were_skipped(dag_run, refreshes) and not dag_run.note:
        dag_run.note = NOTE


def _were_skipped(dag_run: DagRun, task_ids: set[str]) -> bool:
    return all(ti.state == "skipped" for ti in dag_run.task_instances if ti.task_id in task_ids)


class DynamicTablesPlugin(AirflowPlugin):
    """What Airflow finds by the entry point of this package."""

    name = "dynamic_tables"
    listeners = [sys.modules[__name__]]  # noqa: RUF012 - a list, and of each plugin, is what Airflow declares
