"""States of parent DAG runs, queried from task and trigger processes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner

log = logging.getLogger(__name__)

_UNDER_WAY = [DagRunState.QUEUED.value, DagRunState.RUNNING.value]
"""States of a run that may still refresh its table: it is running, or waits for a slot, a retry or a decision."""


def has_given_up(dag_id: str, tick: datetime) -> bool:
    """Return whether the run of a parent's DAG for a tick failed, and no other run of the DAG is active.

    A run that will be retried, was cleared, or waits for a decision about its quarantine is active. False if Airflow has no run
    for that tick (the DAG is paused or has another name), or is not available.
    """
    if getattr(task_runner, "SUPERVISOR_COMMS", None) is None:  # not in a task or trigger process, so Airflow cannot be queried
        return False
    count = task_runner.RuntimeTaskInstance.get_dr_count
    try:
        failed = count(dag_id=dag_id, logical_dates=[tick.astimezone(UTC)], states=[DagRunState.FAILED.value])
        # In this order, so that a run cleared in between counts as active.
        return failed > 0 and count(dag_id=dag_id, states=_UNDER_WAY) == 0
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say how the runs of %s stand: %s", dag_id, error)
        return False
