"""The task ``refresh`` of dynamic tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import Context

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.dags.declared import configured_poll_interval, default_args_of, look_up, refresh_settings
from airflow_dynamic_tables.dags.doc_md import describe_table
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError, UpstreamSuspendedError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import configured_connection
from airflow_dynamic_tables.hooks.metrics import emit_waiting
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.links import SparkLink, TableLink
from airflow_dynamic_tables.operators.reconcilers import beside_ours, count_last_failure
from airflow_dynamic_tables.operators.reporting import ReportsCommits, as_airflow, check_partition_events, report_commit, skip
from airflow_dynamic_tables.operators.run_arguments import (
    OF_OTHERS,
    Runs,
    came_by_itself,
    date_of,
    is_scheduled,
    left_out,
    read_request,
)
from airflow_dynamic_tables.operators.spark_tasks import NEW_JOBS, RunsSpark, spark_arguments
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.outcomes import collecting
from airflow_dynamic_tables.services.refresh.change_detection import skip as skip_refresh
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    Skipped,
    check_partitions,
    not_due,
    requested_partitions,
)
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import Wait, parents_of, why_wait
from airflow_dynamic_tables.services.settings import find_catalogs_file
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.settling import recorded_refresh
from airflow_dynamic_tables.triggers.upstream import UpstreamTrigger, has_given_up

log = logging.getLogger(__name__)

_NOT_MAPPED = (
    "A refresh cannot be mapped: its definition, its asset and its lease are those of one task. Write one task for each table, "
    "in a loop, for example."
)


class DynamicTableRefreshOperator(ReportsCommits, EmitsLineage, RunsSpark):
    """Refresh one dynamic table: wait for its parents, begin, spark-submit, commit; all before success is reported.

    The definition sets pool, retries, callbacks and Spark options. The table's asset is an outlet.

    :param table: its full name, or the definition itself.
    :param definitions: the definitions file or folder that contains it, read while the DAG is created; or the definitions that
        its refresh requires.
    :param catalog_conn_id: Airflow connection of type ``dynamic_tables``; default: option ``connection`` of section
        ``dynamic_tables``.
    :param catalogs_file: default: the one in the folder of the definitions or beside it.
    :param poll_interval: seconds between two checks of pending parents; default: option ``upstream_poll_interval``.
    :param runs: how the runs of the DAG are interpreted; default: as for user DAGs.
    :param kwargs: other operator arguments. They override the definition; outlets, inlets and callbacks are added to those of
        this operator.
    :raises DynamicTableError: if the definition cannot be read or is invalid.
    """

    ui_color = "#e4f4f8"
    operator_extra_links = (SparkLink(), TableLink())

    def __init__(
        self,
        *,
        table: str | DynamicTable,
        definitions: str | Path | Definitions,
        catalog_conn_id: str | None = None,
        catalogs_file: Path | None = None,
        poll_interval: float | None = None,
        runs: Runs = OF_OTHERS,
        **kwargs: Any,
    ) -> None:
        if not isinstance(definitions, Definitions):
            catalogs_file = catalogs_file or find_catalogs_file(Path(definitions))
            table, definitions = look_up(table, definitions, catalogs_file)
        elif not isinstance(table, DynamicTable):
            table = named_table(definitions, table)
        super().__init__(**_refresh_arguments(table, definitions, kwargs))
        self.table = table
        needed = definitions.needed_by(table)
        self.sources = {name: definitions.sources[name] for name in needed if name in definitions.sources}
        self.parents = parents_of(table, definitions)
        self.catalog_conn_id = catalog_conn_id or configured_connection()
        self.catalogs_file = catalogs_file
        self.poll_interval = configured_poll_interval() if poll_interval is None else poll_interval
        self.runs = runs
        self.most_partition_events = table.most_partition_events
        if self.most_partition_events:
            check_partition_events("'partition_events'")
        if self.get_closest_mapped_task_group() is not None:
            raise ConfigurationError(f"{self.task_id}: {_NOT_MAPPED}")

    @property
    def lineage_query(self) -> str:
        """The query of the table."""
        return self.table.query

    @classmethod
    def partial(cls, **_kwargs: Any) -> NoReturn:
        """Reject task mapping."""
        raise ConfigurationError(_NOT_MAPPED)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base method returns nothing
        """Refresh the table.

        :return: version, rows, partitions, schedule time and token (``refresh``) of the commit, as in its asset event.
        """
        return self._refresh_or_fail(context, None)

    def resume(self, context: Context, event: Mapping[str, str], since: str | None = None) -> dict[str, Any]:
        """Continue after waiting.

        :param since: the start of waiting; a task that an earlier release deferred has none.
        """
        if since is not None:
            emit_waiting(self.table.identifier, datetime.now(UTC) - datetime.fromisoformat(since))
        return self._refresh_or_fail(context, datetime.fromisoformat(event["deadline"]))

    def _refresh_or_fail(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        try:
            return self._refresh(context, deadline)
        except DynamicTableError as error:
            log.debug("The refresh failed.", exc_info=True)
            # Without the chain: the message contains the remedy, and the log above it the details.
            raise as_airflow(error) from None

    def _refresh(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        if why := left_out(context, self.table, self.runs):
            skip(context, why)
        request = replace(read_request(context, self.table, self.sources, self.runs), parents=self.parents)
        self._find_spark()
        self._settings = self.catalog_hook().settings()
        with open_workspace(self._settings) as workspace:
            count_last_failure(context, workspace)
            if self.runs.group and is_scheduled(context):
                fresh = fresh_until(workspace, workspace.table(self.table.identifier, self.table.format).current())
                if why := not_due(self.table, request.schedule_time, date_of(context, self.table), fresh):
                    skip(context, why)
            check_partitions(workspace, request)
            self._wait_for_parents(context, workspace, request, deadline)
            self._token = request.token
            commits: list[Version] = []
            listening = self.noting(workspace).with_listener(collecting(commits))
            outcome = run(listening, request, partial(self._submit_plan, context, workspace), self._kill_spark)
            if isinstance(outcome, Skipped):
                if not commits:
                    self.note_skip(self.table.identifier, outcome)
                    skip(context, str(outcome.reason))
                log.info("Nothing more was done: %s", outcome.reason)
            *earlier, last = commits
            return self._report(context, workspace, request, last, earlier)

    def _wait_for_parents(
        self, context: Context, workspace: Workspace, request: RefreshRequest, deadline: datetime | None
    ) -> None:
        """Defer the task while a parent is not fresh enough; skip it if one is suspended, unless a user requested the run."""
        longest = self.runs.group.longest_wait if self.runs.group else None
        try:
            if wait := why_wait(workspace, request, self.parents, deadline, has_given_up, longest):
                self._wait(wait)
        except UpstreamSuspendedError as error:
            if not came_by_itself(context) or (request.updated is not None and not request.updated.is_whole):
                raise  # a skipped run would lose the partitions named by the update
            skip(context, str(skip_refresh(workspace, request, Reason(ReasonCode.UPSTREAM_SUSPENDED, str(error))).reason))

    def _wait(self, wait: Wait) -> NoReturn:
        trigger = UpstreamTrigger.of(wait, self.catalog_conn_id, self.catalogs_file, self.poll_interval)
        # The trigger enforces the deadline; Airflow's timeout only applies if no triggerer runs.
        now = datetime.now(UTC)
        timeout = wait.until - now + self.table.freshness.period
        self.defer(trigger=trigger, method_name=self.resume.__name__, kwargs={"since": now.isoformat()}, timeout=timeout)

    def _report(
        self, context: Context, workspace: Workspace, request: RefreshRequest, version: Version, earlier: Sequence[Version] = ()
    ) -> dict[str, Any]:
        refresh = recorded_refresh(workspace, version)
        if refresh is None and version.partitions is None and not request.has_watermark:
            version = replace(version, partitions=requested_partitions(request))
        before = [(each, recorded_refresh(workspace, each)) for each in earlier]
        return report_commit(context, self, version, refresh, request.schedule_time, before)


def _refresh_arguments(table: DynamicTable, definitions: Definitions, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operator arguments of a table; given arguments override the definition, and the definition overrides defaults.

    :param definitions: the definitions with the dynamic tables that it reads.
    :param given: arguments of the operator, with those of its DAG and task group as ``default_args``.
    :raises ConfigurationError: if a callback of the definition does not exist.
    """
    defaults = given.get("default_args") or {}
    said = refresh_settings(table)
    outlets = [dynamic_table_asset(table.identifier)]
    inlets = [dynamic_table_asset(name) for name in table.upstream if name in definitions.tables]
    beside = {name: [*ours, *(given.get(name) or ())] for name, ours in (("outlets", outlets), ("inlets", inlets))}
    ours = {name: value for name, value in default_args_of(table).items() if name not in defaults}
    fixed = {"name": str(table.identifier), **NEW_JOBS}
    page = {} if "doc_md" in given else {"doc_md": describe_table(table, definitions)}
    callbacks = beside_ours({**defaults, **said, **given})
    return {**ours, **page, **fixed, **spark_arguments(table, defaults), **said, **given, **beside, **callbacks}
