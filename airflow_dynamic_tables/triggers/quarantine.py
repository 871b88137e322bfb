"""Deferred waiting for a decision about a quarantined stage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.ledger.base import StageState


class QuarantineTrigger(BaseTrigger):
    """Fires when a stage is no longer quarantined, or when an error has to be reported by the task.

    The event is empty, because the task reads the state itself. Answers in Airflow's user interface resume the task without this
    trigger.

    :param poll_interval: seconds before the first check, and between two checks.
    """

    def __init__(self, token: str, conn_id: str, catalogs_file: str | None = None, poll_interval: float = 30) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = token
        self.conn_id = conn_id
        self.catalogs_file = catalogs_file
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments for the triggerer."""
        names = ("token", "conn_id", "catalogs_file", "poll_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the stage, after an initial sleep, see :meth:`.upstream.UpstreamTrigger.run`."""
        await asyncio.sleep(self.poll_interval)
        while await asyncio.to_thread(self._is_waiting):
            await asyncio.sleep(self.poll_interval)
        yield TriggerEvent({})  # type: ignore[no-untyped-call]

    def _is_waiting(self) -> bool:
        try:
            with DynamicTableCatalogHook(self.conn_id, self.catalogs_file).get_conn() as workspace:
                stage = workspace.ledger.get_stage(self.token)
        except CatalogUnavailableError as error:
            self.log.warning("%s Looking again in %s seconds.", error, self.poll_interval)
            return True
        except DynamicTableError as error:
            self.log.warning("%s", error)
            return False
        return stage is not None and stage.state is StageState.QUARANTINED
