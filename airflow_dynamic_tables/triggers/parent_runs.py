"""What Airflow says of the runs of a parent's DAG; asked from the processes of tasks and triggers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner

log = logging.getLogger(__name__)

_UNDER_WAY = [DagRunState.QUEUED.value, DagRunState.RUNNING.value]
"""States of a run that may still refresh its table: it waits for a slot, for another try, for somebody who decides, or runs."""


def has_given_up(dag_id: str, tick: datetime) -> bool:
    """Whether the run of a parent's DAG for that tick failed, while no run of it is under way.

    A run that has tries left, was cleared, or asks what becomes of its quarantine is under way. When Airflow does not know a run
    for that tick (the DAG is paused, or has another name) or does not answer, the parent has not given up.
    """
    if getattr(task_runner, "SUPERVISOR_COMMS", None) is None:  # no process of a task or trigger: nobody to ask
        return False
    count = task_runner.RuntimeTaskInstance.get_dr_count
    try:
        failed = count(dag_id=dag_id, logical_dates=[tick.astimezone(UTC)], states=[DagRunState.FAILED.value])
        # In this order: a run that is cleared in between is under way.
        return failed > 0 and count(dag_id=dag_id, states=_UNDER_WAY) == 0
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say how the runs of %s stand: %s", dag_id, error)
        return False
