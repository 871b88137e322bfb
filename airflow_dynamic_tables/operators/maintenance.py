"""The task of the maintenance DAG."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.operators.reporting import LATE_EVENTS, report_missing
from airflow_dynamic_tables.services.maintenance.sweeping import sweep

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class SweepOperator(BaseOperator):
    """Settle stages whose owner is gone, delete what zombies left, prune the history, and tell of what nobody told.

    A task that was killed after its commit, or whose success Airflow did not take, has no asset event: this one has it instead.

    :param catalog_conn_id: Airflow connection of type ``dynamic_tables``.
    :param catalogs_file: the catalogs file, if there is one.
    """

    def __init__(self, *, catalog_conn_id: str = DEFAULT_CONNECTION, catalogs_file: Path | None = None, **kwargs: Any) -> None:
        super().__init__(**{"outlets": [LATE_EVENTS], **kwargs})
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file

    def execute(self, context: Context) -> dict[str, Any]:
        """Sweep once.

        :return: the report of the sweep, and the tokens of refreshes whose events come with this task (``reported``).
        """
        try:
            with DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).get_conn() as workspace:
                report = {**asdict(sweep(workspace)), "reported": report_missing(context, workspace)}
        except DynamicTableError as error:
            raise AirflowException(str(error)) from error
        self.log.info("Swept: %s", report)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in report.items()}
