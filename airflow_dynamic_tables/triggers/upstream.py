"""Waiting, without a worker slot, until every parent of a refresh is fresh enough and the data it awaits are there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData, AwaitedRows
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.services.refresh.requests import Parent
from airflow_dynamic_tables.services.refresh.upstream import Pending, Upstream, is_in_vain, pending, what_is_missing
from airflow_dynamic_tables.triggers.parent_runs import has_given_up

_MOST_TEXTS_OF_DATA = 3
"""A parent has at least four."""


class UpstreamTrigger(BaseTrigger):
    """Fires when nothing is pending, when a parent has failed for good or is suspended, when the deadline has come, or when only
    the task itself can report what is wrong.

    The event carries nothing but the deadline: the task looks for itself.

    :param parents: identifier, format, cron, timezone, freshness and last tick in time of each parent, and name, source and
        rows of the data that are awaited, see :func:`upstream_to_text`.
    :param schedule_time: ISO 8601, with offset; the time up to which parents are needed.
    :param deadline: ISO 8601, with offset; until when to wait.
    :param conn_id: Airflow connection of the catalog.
    :param catalogs_file: the catalogs file, if there is one.
    :param poll_interval: seconds until the first look, and between two looks.
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

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What the triggerer makes the same trigger from."""
        names = ("parents", "schedule_time", "deadline", "conn_id", "catalogs_file", "poll_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sleep, look, sleep again.

        Not look first: the task has just looked. Airflow fails a task that is queued again before its scheduler has heard of the
        deferral, and a scheduler with much to do hears of it late.
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
        """Log what is waited for, once: a day has thousands of looks."""
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
    """What is waited for as the trigger keeps it; what it lacks is empty."""
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
    ]


def _data(text: str, source: str, rows: str = "") -> AwaitedData:
    awaited_rows = from_plain(AwaitedRows, json.loads(rows)) if rows else None
    return AwaitedData(text, TableIdentifier.parse(source) if source else None, awaited_rows)


def _parent(name: str, format_: str, cron: str, timezone: str, *more: str) -> Parent:
    """A parent from its text.

    Triggers of earlier releases have no freshness, which counts only without cron, and no last tick: there, nobody looks whether
    the parent has failed for good.
    """
    freshness, last_tick, workflow_id = (*more, *("1 day", "", "")[len(more) :])
    last = datetime.fromisoformat(last_tick) if last_tick else None
    return Parent(TableIdentifier.parse(name), format_, cron or None, timezone, Freshness.parse(freshness), last, workflow_id)
