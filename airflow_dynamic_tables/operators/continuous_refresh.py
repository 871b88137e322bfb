"""The task ``refresh`` of tables in continuous mode."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner

from airflow_dynamic_tables.core.streaming.partition_commits import PREFIX as PARTITION_COMMIT
from airflow_dynamic_tables.dags.declared import load_workflow
from airflow_dynamic_tables.dags.schedules import CONTINUOUS_TAG
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.reconcilers import count_last_failure
from airflow_dynamic_tables.operators.reporting import check_partition_events, report_commits, tell_partitions
from airflow_dynamic_tables.operators.run_arguments import is_scheduled, owner_of
from airflow_dynamic_tables.services.continuous.base import Work
from airflow_dynamic_tables.services.continuous.loop import RUN_DELAY, DefinitionWatch, Ended, Halt, Loop, strategy_of
from airflow_dynamic_tables.services.continuous.partition_commit import PartitionCommits
from airflow_dynamic_tables.services.refresh.preview import refusal_of_servers
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, why_suspended
from airflow_dynamic_tables.services.writes.settling import recorded_refresh

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

log = logging.getLogger(__name__)


class ContinuousRefreshOperator(DynamicTableRefreshOperator):
    """Refresh one dynamic table in a loop, until its hold time ends or there is another reason to stop; the next run continues.

    A manually triggered run refreshes once, as requested.

    :param definitions_path: the definitions file or folder; without it, changes of the definition take effect after the hold
        time.
    :param kwargs: see :class:`DynamicTableRefreshOperator`.
    """

    def __init__(self, *, definitions_path: Path | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        option = next((name for name in self.table.options if name.startswith(PARTITION_COMMIT)), None)
        if option is not None:
            check_partition_events(f"option {option!r}")
        self.definitions_path = definitions_path
        self._stop = threading.Event()

    def on_kill(self) -> None:
        """Stop the loop, kill Spark, and abort the current stage, if any."""
        # In a thread, because this runs in a signal handler, and the interrupted code may hold the lock of the event.
        threading.Thread(target=self._stop.set, daemon=True).start()
        super().on_kill()

    def _refresh(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        # The DAG has a schedule if its mode changed after this run was created, or if the worker's threshold differs from the
        # scheduler's.
        if not is_scheduled(context) or _is_scheduled_now(context["ti"].dag_id):
            return super()._refresh(context, deadline)
        if not self.hidden_outlets:
            self.hide_assets()  # a run without a commit emits no event
        self._find_spark()
        if self._runner is not None and (why := refusal_of_servers(self.table, self.sources)):
            raise ConfigurationError(f"{why}.")
        self._settings = self.catalog_hook().settings()
        with open_workspace(self._settings) as workspace:
            count_last_failure(context, workspace)
            ended = self._loop(context, self.noting(workspace))
            log.info("The loop ended after %s turns and %s commits: %s.", ended.turns, len(ended.versions), ended.why)
            refreshes = [(version, recorded_refresh(workspace, version)) for version in ended.versions]
            commits = report_commits(context, self, refreshes)
            complete = self._tell_partitions(context, workspace)
            return {"turns": ended.turns, "ended": ended.why, "commits": commits, "complete": complete}

    def _tell_partitions(self, context: Context, workspace: Workspace) -> list[str]:
        """Emit events for complete partitions; errors are only logged, so that the events of the task's commits are not lost."""
        try:
            return tell_partitions(context, self, PartitionCommits(workspace, self.table, self.sources))
        except (DynamicTableError, AirflowRuntimeError):
            log.exception("The events of complete partitions could not be emitted; the next run emits them.")
            return []

    def _loop(self, context: Context, workspace: Workspace) -> Ended:
        ti = context["ti"]
        work = Work(
            workspace=workspace,
            table=self.table,
            sources=self.sources,
            parents=self.parents,
            identity=UUID(str(ti.id)),
            owner=owner_of(ti.dag_id, ti.run_id, ti.task_id),
            submit=lambda plan: self._submit_plan(context, workspace, plan),
            stop_job=self._kill_spark,
        )
        strategy = strategy_of(work)
        loop = Loop(
            strategy=strategy,
            freshness=self.table.freshness,
            settings=replace(self.table.continuous, hold=self._hold()),
            halt=self._halt(context, workspace),
            stop=self._stop,
            clock=workspace.now,
            seconds=time.monotonic,
            delay=_delay(ti),
        )
        try:
            return loop.run()
        except DynamicTableError as error:
            # Not retried, because the loop has retried already. The next run begins with a delay.
            raise AirflowFailException(str(error)) from None
        finally:
            strategy.close()

    def _hold(self) -> timedelta:
        """Return the hold time, limited to half of each timeout, so that the last turn can finish before it."""
        timeouts = (self.execution_timeout, self.table.dagrun_timeout)
        return min([self.table.continuous.hold, *(timeout / 2 for timeout in timeouts if timeout is not None)])

    def _halt(self, context: Context, workspace: Workspace) -> Callable[[], Halt | None]:
        identifier = self.table.identifier
        ti = context["ti"]
        watch = self._watch(ti.dag_id)
        has_news = PartitionCommits(workspace, self.table, self.sources).watched(time.monotonic)

        def halt() -> Halt | None:
            if why := _why_end(ti.dag_id):
                return Halt(why, ends=True)
            if has_news():
                return Halt("a partition is complete, and its event is to be emitted", ends=True)
            changed = watch.halt() if watch is not None else None
            if changed is None and (why := why_suspended(identifier, workspace.find_entry(identifier))):
                return Halt(why)
            return changed

        return halt

    def _watch(self, dag_id: str) -> DefinitionWatch | None:
        if (path := self.definitions_path) is None:
            return None
        return DefinitionWatch(self.table, self.sources, lambda: load_workflow(path, dag_id, self.catalogs_file))


def _why_end(dag_id: str) -> str | None:
    """Return why Airflow requires this run to end: another run is queued, the DAG is paused, or it is no longer continuous."""
    try:
        if task_runner.RuntimeTaskInstance.get_dr_count(dag_id=dag_id, states=[DagRunState.QUEUED.value]):
            return "another run of its DAG waits"
        dag = task_runner.RuntimeTaskInstance.get_dag(dag_id)
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say how the runs of %s stand: %s", dag_id, error)
        return None
    if dag.is_paused:
        return "its DAG is paused"
    return None if CONTINUOUS_TAG in dag.tags else "its DAG has a schedule now"


def _is_scheduled_now(dag_id: str) -> bool:
    """Return whether the scheduler has another mode for the table than this process."""
    try:
        return CONTINUOUS_TAG not in task_runner.RuntimeTaskInstance.get_dag(dag_id).tags
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say which schedule %s has: %s", dag_id, error)
        return False


def _delay(ti: RuntimeTaskInstanceProtocol) -> timedelta:
    """Return the delay before the first turn, because Airflow starts the next run immediately after a failed one.

    The state of manual runs is ignored.
    """
    try:
        last = ti.get_previous_dagrun()
    except AirflowRuntimeError as error:
        log.warning("Airflow does not say how the last run ended: %s", error)
        return timedelta()
    if ti.try_number > 1 or last is None or last.end_date is None:
        return timedelta()
    if (last.run_type, last.state) != ("scheduled", DagRunState.FAILED.value):
        return timedelta()
    return max(last.end_date + RUN_DELAY - datetime.now(UTC), timedelta())
