"""The task of the freshness DAG."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, Context

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dags.callbacks import late_callbacks_of
from airflow_dynamic_tables.dags.declared import is_airflows, load_every
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.hooks.metrics import Gauge, set_gauge
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.refresh.partition_status import count_dirty
from airflow_dynamic_tables.services.status import TableStatus
from airflow_dynamic_tables.services.watching import watch
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_CLAIM = timedelta(minutes=5)
"""Time after which a notice is sent again if it is not recorded that it was sent: the task was killed, or the callback failed."""


class FreshnessOperator(BaseOperator):
    """Check the declared tables that Airflow schedules, whether their DAGs run or not: emit gauges, and notify of late tables.

    The callbacks of a late table, ``on_late_callback``, are called once until the table is fresh again. They get the context of
    this task, and ``dynamic_table``, the :class:`~airflow_dynamic_tables.services.status.TableStatus`.

    :param definitions_path: the definitions file or folder.
    """

    def __init__(
        self,
        *,
        definitions_path: Path,
        catalog_conn_id: str = DEFAULT_CONNECTION,
        catalogs_file: Path | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.definitions_path = definitions_path
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file

    def execute(self, context: Context) -> list[str]:
        """Check all tables once.

        :return: the late tables.
        :raises AirflowException: if a callback failed; it is called again later.
        """
        try:
            definitions, mistakes = load_every(self.definitions_path, self.catalogs_file)
            if mistakes:
                log.warning("Tables of files with mistakes are not checked: %s", mistakes[0])
            tables = {name: table for name, table in definitions.tables.items() if is_airflows(table)}
            with DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).get_conn() as workspace:
                watched = watch(workspace, tables)
                _set_gauges(workspace, watched)
                late = {name: status for name, status in watched.items() if status.late}
                workspace.ledger.forget_notices(watched.keys() - late.keys())
                failed = [name for name in late if not self._notify(context, workspace, tables[name], late[name])]
        except DynamicTableError as error:
            raise AirflowException(str(error)) from error
        if failed:
            raise AirflowException(f"Callbacks of late tables failed: {', '.join(map(str, failed))}; see the log above.")
        return [str(name) for name in late]

    def _notify(self, context: Context, workspace: Workspace, table: DynamicTable, status: TableStatus) -> bool:
        """Call the callbacks that were not called since the table is late; return whether all of them succeeded."""
        try:
            callbacks = late_callbacks_of(table)
        except ConfigurationError as error:
            log.error("%s is late: %s", table.identifier, error)
            return False
        has_succeeded = True
        for key, callback in callbacks.items():
            now = workspace.now()
            if not workspace.ledger.claim_notice(table.identifier, key, now, now + _CLAIM):
                continue
            try:
                callback({**context, "dynamic_table": status})  # a copy, because notifiers change it
                workspace.ledger.record_notice(table.identifier, key, workspace.now())
            except Exception:
                log.exception("A callback of %s, which is late, failed. Next try in %s.", table.identifier, _CLAIM)
                has_succeeded = False
        return has_succeeded


def _set_gauges(workspace: Workspace, watched: Mapping[TableIdentifier, TableStatus]) -> None:
    quarantined = Counter(stage.table for stage in workspace.ledger.list_stages(states=(StageState.QUARANTINED,)))
    for name, status in watched.items():
        values = {
            Gauge.LAG: status.lag_seconds,
            Gauge.ALLOWED_LAG: status.allowed_lag_seconds,
            Gauge.LATE: int(bool(status.late)),
            Gauge.SHARE_OF_DAY: status.share_of_day,
            Gauge.SHARE_OF_WEEK: status.share_of_week,
            Gauge.MISSING_PARTITIONS: status.missing_partitions,
            Gauge.DIRTY_PARTITIONS: count_dirty(workspace, name),
            Gauge.QUARANTINED: quarantined[name],
        }
        for gauge, value in values.items():
            if value is not None:
                set_gauge(gauge, name, value)
