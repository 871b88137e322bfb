"""The task of the maintenance DAG."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, Context

from airflow_dynamic_tables.dags.declared import load_every
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.reporting import LATE_EVENTS, report_missing
from airflow_dynamic_tables.services.deployments.diffing import no_longer_declared
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

log = logging.getLogger(__name__)


class SweepOperator(EmitsLineage):
    """Settle stages without an owner, delete leftovers of zombie tasks, prune the history, and emit missing asset events.

    A task that was killed after its commit, or whose success Airflow did not accept, has no asset event, so this task emits it. A
    table that is no longer declared has no DAG; the log of this task and the note of the run name it (see ``plugins.notes``).

    :param definitions_path: the definitions file or folder; without it, undeclared tables are not reported.
    """

    def __init__(
        self,
        *,
        catalog_conn_id: str = DEFAULT_CONNECTION,
        catalogs_file: Path | None = None,
        definitions_path: Path | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"outlets": [LATE_EVENTS], **kwargs})
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file
        self.definitions_path = definitions_path

    def execute(self, context: Context) -> dict[str, Any]:
        """Sweep once.

        :return: the report of the sweep, the tokens of refreshes whose events this task emits (``reported``), and the tables that
            are no longer declared (``undeclared``), ``None`` if unknown.
        """
        try:
            self._settings = DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).settings()
            with open_workspace(self._settings) as workspace:
                swept = {**asdict(sweep(workspace)), "reported": report_missing(context, self, workspace)}
                self.note_commits(*swept["reported"])
                report = {**swept, "undeclared": self._undeclared(workspace)}
        except DynamicTableError as error:
            raise AirflowException(str(error)) from error
        log.info("Swept: %s", report)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in report.items()}

    def _undeclared(self, workspace: Workspace) -> list[str] | None:
        """Return the tables that are no longer declared; errors are only logged, so that they do not prevent the sweep."""
        if self.definitions_path is None:
            return None
        try:
            definitions, mistakes = load_every(self.definitions_path, self.catalogs_file)
            if mistakes:
                log.info(
                    "Because of mistakes in definitions, it is not known which tables are no longer declared: %s", mistakes[0]
                )
                return None
            tables = no_longer_declared(workspace, definitions, self.definitions_path)
        except DynamicTableError as error:
            log.warning("It is not known which tables are no longer declared: %s", error)
            return None
        for table in tables:
            log.warning(
                "%s is declared in %s no more. It keeps its rows, which are not refreshed, until: dynamic-tables drop %s",
                *(table, self.definitions_path, table),
            )
        return [str(table) for table in tables]
