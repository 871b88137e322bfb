"""Deferred waiting for fresh parents and awaited data of a refresh."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.services.refresh.requests import Parent
from airflow_dynamic_tables.services.refresh.upstream import Pending, Upstream, Wait, is_in_vain, pending, what_is_missing

_MOST_TEXTS_OF_DATA = 3
"""Most texts of an awaited data entry; a parent has at least four."""


class UpstreamTrigger(BaseTrigger):
    """Fires when nothing is pending, waiting is in vain, or the deadline has passed.

    Waiting is in vain when a parent has finally failed or is suspended. Errors that only the task can report also fire the
    trigger. The event only contains the deadline, because the task reads the state itself.

    :param parents: identifier, format, cron, timezone, freshness and last tick in time of each parent, and name, source and rows
        of awaited data, see :func:`upstream_to_text`.
    :param schedule_time: ISO 8601, with offset; the time up to which parents are required.
    :param deadline: ISO 8601, with offset; the end of waiting.
    :param poll_interval: seconds before the first check, and between two checks.
    """

    def __init__(
        self,
        parents: Sequence[Sequence[str]],
        schedule_time: str,
        deadline: str,
        conn_id: str,
        catalogs_file: str | None = None,
        poll_interval: float = 30,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parents = [list(parent) for parent in parents]
        self.schedule_time = schedule_time
        self.deadline = deadline
        self.conn_id = conn_id
        self.catalogs_file = catalogs_file
        self.poll_interval = poll_interval
        self._told = ""

    @classmethod
    def of(cls, wait: Wait, conn_id: str, catalogs_file: Path | None, poll_interval: float) -> UpstreamTrigger:
        """Return the trigger for upstreams that a task waits for."""
        return cls(
            parents=upstream_to_text(wait.upstream),
            schedule_time=wait.needed_until.isoformat(),
            deadline=wait.until.isoformat(),
            conn_id=conn_id,
            catalogs_file=str(catalogs_file) if catalogs_file else None,
            poll_interval=poll_interval,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments for the triggerer."""
        names = ("parents", "schedule_time", "deadline", "conn_id", "catalogs_file", "poll_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the parents, after an initial sleep.

        The task has just checked them. Airflow fails a task that is queued again before its scheduler has processed the deferral,
        which takes long on a busy scheduler.
        """
        while (left := self._seconds_left()) > 0:
            await asyncio.sleep(min(self.poll_interval, left))
            if await asyncio.to_thread(self._is_over):
                break
        yield TriggerEvent({"deadline": self.deadline})  # type: ignore[no-untyped-call]

    def _seconds_left(self) -> float:
        return (datetime.fromisoformat(self.deadline) - datetime.now(UTC)).total_seconds()

    def _is_over(self) -> bool:
        try:
            with DynamicTableCatalogHook(self.conn_id, self.catalogs_file).get_conn() as workspace:
                waiting = pending(
                    workspace,
                    [_data(*texts) if len(texts) <= _MOST_TEXTS_OF_DATA else _parent(*texts) for texts in self.parents],
                    datetime.fromisoformat(self.schedule_time),
                    has_given_up,
                )
        except CatalogUnavailableError as error:
            self.log.warning("%s Looking again in %s seconds.", error, self.poll_interval)
            return False
        except DynamicTableError as error:
            self.log.warning("%s", error)
            return True
        is_over = not waiting or is_in_vain(waiting)
        self._tell(waiting, is_over)
        return is_over

    def _tell(self, waiting: Sequence[Pending], is_over: bool) -> None:
        """Log what is pending, only on changes: a day has thousands of checks."""
        missing = what_is_missing(waiting)
        if missing == self._told:
            return
        self._told = missing
        if not missing:
            self.log.info("Nothing is to be waited for any more.")
        elif is_over:
            self.log.warning("Waiting no longer: %s.", missing)
        else:
            self.log.info("Waiting, at most until %s: %s.", self.deadline, missing)


def upstream_to_text(upstream: Iterable[Upstream]) -> list[list[str]]:
    """Serialize parents and awaited data for the trigger; missing values are empty."""
    return [_data_to_text(each) if isinstance(each, AwaitedData) else _parent_to_text(each) for each in upstream]


def _data_to_text(awaited: AwaitedData) -> list[str]:
    rows = [json.dumps(to_plain(awaited.rows))] if awaited.rows is not None else []
    return [awaited.text, str(awaited.source or ""), *rows]


def _parent_to_text(parent: Parent) -> list[str]:
    return [
        str(parent.identifier),
        parent.format,
        parent.cron or "",
        parent.timezone,
        parent.freshness.text,
        parent.last_tick.isoformat() if parent.last_tick else "",
        parent.workflow_id,
        str(parent.max_lag.total_seconds()) if parent.max_lag is not None else "",
    ]


def _data(text: str, source: str, rows: str = "") -> AwaitedData:
    awaited_rows = from_plain(AwaitedRows, json.loads(rows)) if rows else None
    return AwaitedData(text, TableIdentifier.parse(source) if source else None, awaited_rows)


def _parent(name: str, format_: str, cron: str, timezone: str, *more: str) -> Parent:
    """Parse a parent.

    Triggers of earlier releases lack the freshness, which only counts without cron, the last tick, without which a failed parent
    is not detected, and later fields.
    """
    freshness, last_tick, workflow_id, seconds = (*more, *("1 day", "", "", "")[len(more) :])
    last = datetime.fromisoformat(last_tick) if last_tick else None
    max_lag = timedelta(seconds=float(seconds)) if seconds else None
    identifier = TableIdentifier.parse(name)
    return Parent(identifier, format_, cron or None, timezone, Freshness.parse(freshness), last, workflow_id, max_lag)


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
