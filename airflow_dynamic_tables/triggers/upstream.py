"""Waiting, without a worker slot, until every parent of a refresh is fresh enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.services.refresh.upstream import Parent, pending, what_is_missing


class UpstreamTrigger(BaseTrigger):
    """Fires when nothing is pending, when the deadline has come, or when only the task itself can report what is wrong.

    The event carries nothing but the deadline: the task looks for itself.

    :param parents: identifier, format, cron, timezone and freshness of each parent, see :func:`parents_to_text`.
    :param schedule_time: ISO 8601, with offset.
    :param deadline: ISO 8601, with offset; until when to wait.
    :param conn_id: Airflow connection of the catalog.
    :param catalogs_file: the catalogs file, if there is one.
    :param poll_interval: seconds between two looks.
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
        """Look, sleep, look again."""
        while not await asyncio.to_thread(self._is_over):
            left = (datetime.fromisoformat(self.deadline) - datetime.now(UTC)).total_seconds()
            if left <= 0:
                break
            await asyncio.sleep(min(self.poll_interval, left))
        yield TriggerEvent({"deadline": self.deadline})  # type: ignore[no-untyped-call]

    def _is_over(self) -> bool:
        try:
            with DynamicTableCatalogHook(self.conn_id, self.catalogs_file).get_conn() as workspace:
                waiting = pending(workspace, _parents(self.parents), datetime.fromisoformat(self.schedule_time))
        except CatalogUnavailableError as error:
            self.log.warning("%s Looking again in %s seconds.", error, self.poll_interval)
            return False
        except DynamicTableError as error:
            self.log.warning("%s", error)
            return True
        self._tell(what_is_missing(waiting))
        return not waiting

    def _tell(self, missing: str) -> None:
        """Log what is waited for, once: a day has thousands of looks."""
        if missing == self._told:
            return
        self._told = missing
        if missing:
            self.log.info("Waiting until %s at most: %s.", self.deadline, missing)
        else:
            self.log.info("All parents are fresh enough.")


def parents_to_text(parents: Iterable[Parent]) -> list[list[str]]:
    """Parents as the trigger keeps them."""
    return [
        [str(parent.identifier), parent.format, parent.cron or "", parent.timezone, parent.freshness.text] for parent in parents
    ]


def _parents(texts: Iterable[Sequence[str]]) -> list[Parent]:
    return [
        Parent(TableIdentifier.parse(name), format_, cron or None, timezone, Freshness.parse(freshness))
        for name, format_, cron, timezone, freshness in texts
    ]
