"""The sensor that waits until a dynamic table is fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    BaseSensorOperator,
    Context,
    conf,
)

from airflow_dynamic_tables.dags.declared import configured_poll_interval, look_up
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook, configured_connection
from airflow_dynamic_tables.operators.run_arguments import date_of
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.refresh.requests import Parent
from airflow_dynamic_tables.services.refresh.upstream import Pending, Wait, is_in_vain, pending, waited_too_long, what_is_missing
from airflow_dynamic_tables.services.settings import find_catalogs_file
from airflow_dynamic_tables.triggers.upstream import UpstreamTrigger, has_given_up


class DynamicTableFreshnessSensor(BaseSensorOperator):
    """Wait until a dynamic table is fresh up to its latest tick at or before the date of the run.

    That is when a refresh would wait no longer for the table as its parent. A table without schedule has to be as fresh as its
    freshness says. The sensor fails without waiting longer if the table is suspended, or if the run for its last tick before the
    timeout failed.

    :param table: its full name, or the definition itself.
    :param definitions: the definitions file or folder that contains it, or the definitions.
    :param max_lag: how far the table may be behind the date of the run instead.
    :param catalog_conn_id: Airflow connection of type ``dynamic_tables``; default: option ``connection`` of section
        ``dynamic_tables``.
    :param catalogs_file: default: the one in the folder of the definitions or beside it.
    :param deferrable: whether to wait in the triggerer, without a worker slot; default: option ``default_deferrable`` of section
        ``operators``.
    :param kwargs: other arguments of sensors. The default of ``poke_interval`` is option ``upstream_poll_interval``.
    :raises DynamicTableError: if the definition cannot be read or is invalid.
    """

    ui_color = "#e4f4f8"

    def __init__(
        self,
        *,
        table: str | DynamicTable,
        definitions: str | Path | Definitions,
        max_lag: timedelta | None = None,
        catalog_conn_id: str | None = None,
        catalogs_file: Path | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"poke_interval": configured_poll_interval(), **kwargs})
        if not isinstance(definitions, Definitions):
            catalogs_file = catalogs_file or find_catalogs_file(Path(definitions))
            table, _ = look_up(table, definitions, catalogs_file)
        elif not isinstance(table, DynamicTable):
            table = named_table(definitions, table)
        self.table = table
        self.max_lag = max_lag
        self.catalog_conn_id = catalog_conn_id or configured_connection()
        self.catalogs_file = catalogs_file
        self.deferrable = _default_deferrable() if deferrable is None else deferrable

    def execute(self, context: Context) -> None:
        """Wait for the table, in the triggerer if it is ``deferrable``."""
        if not self.deferrable:
            super().execute(context)
            return
        until = datetime.now(UTC) + timedelta(seconds=self.timeout)
        if self._waiting(context, until):
            self._wait(context, until)

    def poke(self, context: Context) -> bool:
        """Return whether the table is fresh."""
        return not self._waiting(context, datetime.now(UTC) + timedelta(seconds=self.timeout))

    def resume(self, context: Context, event: Mapping[str, str]) -> None:
        """Continue after waiting in the triggerer, which also ends at the timeout and on errors.

        :raises AirflowSensorTimeout: if the table is not fresh at the timeout.
        """
        until = datetime.fromisoformat(event["deadline"])
        waiting = self._waiting(context, until)
        if not waiting:
            return
        if until <= datetime.now(UTC):
            raise AirflowSensorTimeout(str(waited_too_long(waiting)))
        self._wait(context, until)

    def _waiting(self, context: Context, until: datetime) -> tuple[Pending, ...]:
        """Return the table if it is not fresh yet; empty if it is.

        :raises AirflowFailException: if waiting is in vain.
        """
        try:
            with DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).get_conn() as workspace:
                waiting = pending(workspace, [self._parent(until)], date_of(context, self.table), has_given_up)
        except DynamicTableError as error:
            if isinstance(error, CatalogUnavailableError):
                raise
            raise AirflowFailException(str(error)) from None
        if is_in_vain(waiting):
            raise AirflowFailException(str(waited_too_long(waiting)))
        if waiting:
            self.log.info("Waiting, at most until %s: %s.", until.isoformat(), what_is_missing(waiting))
        return waiting

    def _parent(self, until: datetime) -> Parent:
        parent = Parent.of(self.table, self.max_lag)
        return replace(parent, last_tick=parent.last_tick_before(until))

    def _wait(self, context: Context, until: datetime) -> None:
        wait = Wait((self._parent(until),), until, date_of(context, self.table))
        trigger = UpstreamTrigger.of(wait, self.catalog_conn_id, self.catalogs_file, self.poke_interval)
        # The trigger enforces the timeout; Airflow's only applies if no triggerer runs.
        timeout = until - datetime.now(UTC) + timedelta(hours=1)
        self.defer(trigger=trigger, method_name=self.resume.__name__, timeout=timeout)


def _default_deferrable() -> bool:
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))
