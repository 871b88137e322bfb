"""The task of the freshness DAG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, Context

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dags.declared import is_airflows, load_every
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.hooks.metrics import Gauge, set_gauge
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.status import TableStatus
from airflow_dynamic_tables.services.watching import watch
from airflow_dynamic_tables.services.workspace import Workspace


class FreshnessOperator(BaseOperator):
    """Emit the gauges of all declared tables that Airflow schedules, whether their DAGs run or not.

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

    def execute(self, context: Context) -> list[str]:  # noqa: ARG002 - called by Airflow
        """Check all tables once.

        :return: the late tables.
        """
        try:
            definitions, mistakes = load_every(self.definitions_path, self.catalogs_file)
            if mistakes:
                self.log.warning("Tables of files with mistakes are not checked: %s", mistakes[0])
            tables = {name: table for name, table in definitions.tables.items() if is_airflows(table)}
            with DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).get_conn() as workspace:
                statuses = watch(workspace, tables)
                _set_gauges(workspace, statuses)
        except DynamicTableError as error:
            raise AirflowException(str(error)) from error
        return [str(name) for name, status in statuses.items() if status.late]


def _set_gauges(workspace: Workspace, statuses: Mapping[TableIdentifier, TableStatus]) -> None:
    quarantined = Counter(stage.table for stage in workspace.ledger.list_stages(states=(StageState.QUARANTINED,)))
    for name, status in statuses.items():
        values = {
            Gauge.LAG: status.lag_seconds,
            Gauge.ALLOWED_LAG: status.allowed_lag_seconds,
            Gauge.LATE: int(bool(status.late)),
            Gauge.MISSING_PARTITIONS: status.missing_partitions,
            Gauge.QUARANTINED: quarantined[name],
        }
        for gauge, value in values.items():
            if value is not None:
                set_gauge(gauge, name, value)
