"""The operator for CREATE TABLE AS in user DAGs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.dags.declared import load_every
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import configured_connection
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.links import SparkLink
from airflow_dynamic_tables.operators.reconcilers import beside_ours
from airflow_dynamic_tables.operators.reporting import as_airflow
from airflow_dynamic_tables.operators.run_arguments import owner_of
from airflow_dynamic_tables.operators.spark_tasks import NEW_JOBS, RunsSpark
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, QueryPlace, WantedTable, keys_in, named_new_table, purpose_of
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.settings import find_catalogs_file
from airflow_dynamic_tables.services.workspace import open_workspace

log = logging.getLogger(__name__)

_HOW = {"format": None, "partitioned_by": (), "comment": None, "timezone": "UTC", "catalogs_file": None}
"""Arguments for the created table, with their defaults."""


class CreateTableAsOperator(EmitsLineage, RunsSpark):
    """Create a table from a query: begin, spark-submit, commit; all before success is reported. On failure, no table exists.

    Table, query and table properties are templates; a query that ends with ``.sql`` is a file name. Its callbacks reconcile by
    the token of the try. It sets no outlets.

    :param table: the name of the table; the catalogs file completes short names.
    :param if_not_exists: whether to keep an existing table, and succeed.
    :param replace: whether to atomically replace the rows of a table created this way.
    :param definitions: the definitions file or folder that declares sources; read when the task runs.
    :param catalog_conn_id: Airflow connection of type ``dynamic_tables``; default: option ``connection`` of section
        ``dynamic_tables``.
    :param kwargs: ``format``, ``partitioned_by``, ``comment`` and ``timezone`` of the table, ``catalogs_file``, and arguments of
        SparkSubmitOperator.
    :raises ConfigurationError: if ``if_not_exists`` and ``replace`` are both given.
    """

    ui_color = "#e4f4f8"
    operator_extra_links = (SparkLink(),)
    template_fields: Sequence[str] = (
        *(name for name in RunsSpark.template_fields if name != "name"),
        *("table", "query", "format", "partitioned_by", "comment"),
    )
    template_ext: Sequence[str] = (".sql",)

    def __init__(
        self,
        *,
        table: str,
        query: str,
        if_not_exists: bool = False,
        replace: bool = False,
        definitions: str | Path | None = None,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        how = {name: kwargs.pop(name, default) for name, default in _HOW.items()}
        defaults = kwargs.get("default_args") or {}
        fixed = {"name": "create-table-as", **NEW_JOBS}
        super().__init__(**{**fixed, **kwargs, **beside_ours({**defaults, **kwargs}, counts=False)})
        self.table = table
        self.query = query
        self.format = how["format"]
        self.partitioned_by = how["partitioned_by"]
        self.comment = how["comment"]
        self.timezone = how["timezone"]
        self.purpose = purpose_of(if_not_exists=if_not_exists, replace=replace)
        self.definitions = str(definitions) if definitions is not None else None
        beside = find_catalogs_file(Path(definitions)) if definitions is not None else None
        self.catalogs_file = Path(how["catalogs_file"]) if how["catalogs_file"] else beside
        self.catalog_conn_id = catalog_conn_id or configured_connection()

    @property
    def lineage_query(self) -> str:
        """The query of the table."""
        return self.query

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base method returns nothing
        """Create the table.

        :return: its name and outcome; if created, also version, rows, files, bytes, seconds, token and sources.
        """
        try:
            made = self._create(context)
        except DynamicTableError as error:
            log.debug("The table was not made.", exc_info=True)
            raise as_airflow(error) from None
        return {**to_plain(made), "table": str(made.table)}

    def _create(self, context: Context) -> Created:
        wanted = self._wanted()
        definitions = self._definitions()
        self._find_spark()
        self._settings = self.catalog_hook().settings()
        ti = context["ti"]
        with open_workspace(self._settings) as workspace:
            self._token = str(ti.id)
            made = create_table_as(
                self.noting(workspace),
                definitions,
                wanted,
                (self._token, owner_of(ti.dag_id, ti.run_id, ti.task_id)),
                lambda plan: self._submit(context, workspace, plan),
                self._kill_spark,
            )
        log.info("%s: %s%s.", made.table, made.outcome, f", {made.rows} rows" if made.rows is not None else "")
        return made

    def _wanted(self) -> WantedTable:
        scope = names_scope(os.environ, self.catalogs_file)
        said = self.partitioned_by
        keys, keys_place = keys_in(said, "partitioned_by") if isinstance(said, str) else (tuple(said), None)
        return WantedTable(
            identifier=named_new_table(self.table, scope),
            query=self.query,
            scope=scope,
            place=QueryPlace(Path("query"), self.query),
            purpose=self.purpose,
            format=self.format or None,
            partition_keys=keys,
            keys_place=keys_place,
            comment=self.comment,
            timezone=self.timezone,
            spark=self._spark_settings(),
        )

    def _definitions(self) -> Definitions:
        if self.definitions is None:
            return Definitions()
        defined, mistakes = load_every(self.definitions, self.catalogs_file)
        for mistake in mistakes:
            log.warning("%s", mistake)
        return defined
