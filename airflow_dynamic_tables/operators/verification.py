"""The tasks of the verification DAG."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_dynamic_tables.dags.callbacks import callbacks_of
from airflow_dynamic_tables.dags.declared import default_args_of, task_settings
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.links import SparkLink, TableLink
from airflow_dynamic_tables.operators.reporting import as_airflow, skip
from airflow_dynamic_tables.operators.run_arguments import date_of
from airflow_dynamic_tables.operators.spark_tasks import NEW_JOBS, RunsSpark, spark_arguments
from airflow_dynamic_tables.services.refresh.verifying import NOT_VERIFIABLE, VerifiedPartition, check_verified, verify_turn
from airflow_dynamic_tables.services.workspace import open_workspace


class VerifyOperator(EmitsLineage, RunsSpark):
    """Verify the partitions of a table whose turn is on the day of the run; fail if some differ. Nothing is published.

    The definition sets pool, retries, Spark options and ``on_failure_callback``.

    :param definitions: the definitions with the sources that the table reads.
    """

    ui_color = "#e4f4f8"
    operator_extra_links = (SparkLink(), TableLink())

    def __init__(
        self,
        *,
        table: DynamicTable,
        definitions: Definitions,
        catalog_conn_id: str = DEFAULT_CONNECTION,
        catalogs_file: Path | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**_verification_arguments(table, kwargs.get("default_args") or {}), **kwargs})
        self.table = table
        self.sources = definitions.sources
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file

    @property
    def lineage_query(self) -> str:
        """The query of the table."""
        return self.table.query

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base method returns nothing
        """Verify the table.

        :return: the partitions that are equal (``verified``), and why others are not verified (``not_verified``).
        """
        day = date_of(context, self.table).date()
        try:
            self._find_spark()
            self._settings = self.catalog_hook().settings()
            with open_workspace(self._settings) as workspace:
                submit = partial(self._submit_plan, context, workspace)
                found = verify_turn(self.noting(workspace), self.table, self.sources, day, submit, self._kill_spark)
        except NOT_VERIFIABLE as error:
            skip(context, str(error))
        except DynamicTableError as error:
            raise as_airflow(error) from None
        for one in found:
            self.log.info("%s", one)
        try:
            check_verified(self.table, found)
        except DynamicTableError as error:
            raise as_airflow(error) from None
        return _report(found)


def _report(found: list[VerifiedPartition]) -> dict[str, Any]:
    equal = [one.partition for one in found if not one.reason]
    return {"verified": equal, "not_verified": {one.partition: one.reason for one in found if one.reason}}


def _verification_arguments(table: DynamicTable, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operator arguments of a definition. A drift prevents no later verification."""
    ours = {name: value for name, value in default_args_of(table).items() if name not in defaults}
    said = {**task_settings(table), "depends_on_past": False}
    told = {name: value for name, value in callbacks_of(table).items() if name == "on_failure_callback"}
    return {**ours, "name": f"verification of {table.identifier}", **NEW_JOBS, **spark_arguments(table, defaults), **said, **told}
