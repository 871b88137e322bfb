"""The task ``refresh`` of every dynamic table."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseHook,
)

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DynamicTableError,
    JobFailedError,
    JobMisfitError,
    QuarantinedError,
    SchemaEvolutionError,
    UpstreamError,
)
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.operators.reconcilers import beside_ours
from airflow_dynamic_tables.operators.reporting import ReportsCommits, report_commit
from airflow_dynamic_tables.operators.run_arguments import read_request
from airflow_dynamic_tables.runners.environment import check_java, find_spark_submit, spark_environment, variables_set
from airflow_dynamic_tables.runners.package import application_file, application_zip
from airflow_dynamic_tables.runners.spark_submit import job_failure, submit_failure
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped, requested_partitions
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import Parent, pending, waited_too_long, what_is_missing
from airflow_dynamic_tables.services.settings import Settings
from airflow_dynamic_tables.services.stages.settling import abort, recorded_refresh
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.triggers.upstream import UpstreamTrigger, parents_to_text

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

_HOPELESS = (ConfigurationError, UpstreamError, SchemaEvolutionError, JobMisfitError, QuarantinedError)
"""Errors that another try would only repeat."""

_DEATH_SECONDS = 1
"""How long to wait for the end of a process that got SIGKILL: what it writes after that would outlive its stage."""

_ABORT_SECONDS = 3
"""How long ``on_kill`` waits for the abort: Airflow sends SIGKILL five seconds after SIGTERM."""


class DynamicTableRefreshOperator(ReportsCommits, SparkSubmitOperator):
    """Refresh one dynamic table: wait for its parents, begin, spark-submit, commit; all before success is reported.

    :param table: the definition.
    :param sources: definitions of the tables it reads that nobody here refreshes.
    :param parents: the dynamic tables it reads, or may read through views of catalogs.
    :param catalog_conn_id: Airflow connection of type ``dynamic_tables``.
    :param catalogs_file: the catalogs file, if there is one.
    :param poll_interval: seconds between two looks at parents it waits for.
    :param kwargs: what else an operator takes; callbacks come beside those of this operator, never instead.
    """

    ui_color = "#e4f4f8"

    def __init__(
        self,
        *,
        table: DynamicTable,
        sources: Mapping[TableIdentifier, Source],
        parents: Sequence[Parent] = (),
        catalog_conn_id: str = DEFAULT_CONNECTION,
        catalogs_file: Path | None = None,
        poll_interval: float = 30,
        **kwargs: Any,
    ) -> None:
        spark = {field.name: value for field in fields(table.spark) if (value := getattr(table.spark, field.name))}
        defaults = kwargs.get("default_args") or {}
        # Spark's own hook adds to the conf.
        spark["conf"] = {**(defaults.get("conf") or {}), **table.spark.conf}
        callbacks = beside_ours({**defaults, **kwargs})
        # A durable job would be found again by a later try, whose stage it does not write to.
        super().__init__(**{"name": str(table.identifier), "durable": False, **spark, **kwargs, **callbacks})
        self.table = table
        self.sources = sources
        self.parents = tuple(parents)
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file
        self.poll_interval = poll_interval
        self._settings: Settings | None = None
        self._token: str | None = None
        self._killed = False

    def catalog_hook(self) -> DynamicTableCatalogHook:
        """The hook to ledger and catalogs."""
        return DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # it returns nothing there
        """Refresh the table.

        :return: version, rows, partitions, schedule time and token (``refresh``) of the commit, as its asset event has them.
        """
        return self._refresh_or_fail(context, None)

    def resume(self, context: Context, event: Mapping[str, str]) -> dict[str, Any]:
        """Go on after waiting.

        :param event: what :class:`UpstreamTrigger` fired.
        """
        return self._refresh_or_fail(context, datetime.fromisoformat(event["deadline"]))

    def on_kill(self) -> None:
        """Kill Spark, then abort within the five seconds that Airflow gives; best effort."""
        self._killed = True
        self._kill_spark()
        if self._settings is None or self._token is None:
            return
        # In a thread: this runs inside a signal handler, and the code it interrupted may hold a lock.
        thread = threading.Thread(target=self._abort, args=(self._settings, self._token), daemon=True)
        thread.start()
        thread.join(_ABORT_SECONDS)

    def _abort(self, settings: Settings, token: str) -> None:
        with suppress(DynamicTableError), open_workspace(settings) as workspace:
            abort(workspace, token, "the Airflow task was stopped")

    def _kill_spark(self) -> None:
        if self._hook is None:
            return
        # Without a supervisor Airflow's own logger raises, and before anything was killed.
        self._hook._log = log  # type: ignore[assignment]  # theirs takes more
        super().on_kill()
        if process := self._spark_submit():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_SECONDS)

    def _spark_submit(self) -> subprocess.Popen[str] | None:
        return getattr(self._hook, "_submit_sp", None)

    def _refresh_or_fail(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        try:
            return self._refresh(context, deadline)
        except DynamicTableError as error:
            log.debug("The refresh failed.", exc_info=True)
            # Without the chain: the message says what to do, the log above it what happened.
            kind = AirflowFailException if isinstance(error, _HOPELESS) else AirflowException
            raise kind(str(error)) from None

    def _refresh(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        request = read_request(context, self.table, self.sources)
        self._find_spark()
        self._settings = self.catalog_hook().settings()
        with open_workspace(self._settings) as workspace:
            read = inline_views(workspace, self.table, self.sources).upstream
            parents = [parent for parent in self.parents if parent.identifier in read]
            waiting = pending(workspace, parents, request.schedule_time)
            if waiting and deadline is not None and deadline <= workspace.now():
                raise waited_too_long(waiting)
            if waiting:
                until = deadline or workspace.now() + self.table.freshness.period
                log.info("Waiting until %s at most: %s.", until.isoformat(), what_is_missing(waiting))
                self._wait(parents, request.schedule_time, until)
            self._token = request.token
            outcome = run(workspace, request, lambda plan: self._submit(context, workspace, plan), self._kill_spark)
            if isinstance(outcome, Skipped):
                log.info("Skipped: %s", outcome.reason)
                raise AirflowSkipException(str(outcome.reason))
            return self._report(context, workspace, request, outcome)

    def _wait(self, parents: Sequence[Parent], schedule_time: datetime, deadline: datetime) -> NoReturn:
        trigger = UpstreamTrigger(
            parents=parents_to_text(parents),
            schedule_time=schedule_time.isoformat(),
            deadline=deadline.isoformat(),
            conn_id=self.catalog_conn_id,
            catalogs_file=str(self.catalogs_file) if self.catalogs_file else None,
            poll_interval=self.poll_interval,
        )
        # The trigger keeps the deadline itself; Airflow's timeout only covers a triggerer that does not run.
        timeout = deadline - datetime.now(UTC) + self.table.freshness.period
        self.defer(trigger=trigger, method_name=self.resume.__name__, timeout=timeout)

    def _find_spark(self) -> None:
        """Check the Spark connection, Java and spark-submit, and choose the latter.

        :raises ConfigurationError: when one is missing; the stock hook would go on with YARN.
        """
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"Spark connection {self._conn_id!r} does not exist; create it, for example with: "
                f"airflow connections add {self._conn_id} --conn-type spark --conn-host 'local[*]'"
            ) from error
        environ = {**os.environ, **(self.env_vars or {})}
        check_java(environ)
        binary = self._spark_binary or connection.extra_dejson.get("spark-binary") or "spark-submit"
        self._spark_binary = find_spark_submit(environ) if binary == "spark-submit" else shutil.which(binary)
        if self._spark_binary is None:
            raise ConfigurationError(f"{binary} of Spark connection {self._conn_id!r} is not on the PATH of this worker.")

    def _submit(self, context: Context, workspace: Workspace, plan: RefreshPlan) -> None:
        if self._killed:  # Airflow does not interrupt execute, so Spark would begin after the stage is gone
            raise JobFailedError("The task was stopped before Spark began.")
        self.py_files = ",".join(filter(None, (str(application_zip()), self.py_files)))
        self.application = str(application_file())
        self.application_args = ["--plan", plan.plan_location]
        # Not by env_vars: these also go to the cluster.
        environment = {**job_environment(workspace, plan), "PATH": spark_environment(os.environ)["PATH"]}
        try:
            with variables_set(environment):
                super().execute(context)
        except (AirflowException, OSError, RuntimeError, ValueError) as error:
            raise job_failure(plan, self._log_tail()) or self._submit_failure(error) from error
        except AirflowTaskTimeout as error:
            error.args = (f"The task did not end within its execution timeout ({self.execution_timeout}).",)
            raise
        finally:
            # The task's timeout, or a log that nobody takes: on_kill comes too late or not at all, and the stage goes next.
            if (process := self._spark_submit()) and process.poll() is None:
                self._kill_spark()

    def _submit_failure(self, error: Exception) -> JobFailedError:
        """The error of a spark-submit that ended before the job could speak, or did not even begin."""
        process = self._spark_submit()
        tail = self._log_tail()
        return submit_failure(tail, process.returncode) if process and tail else JobFailedError(str(error))

    def _log_tail(self) -> list[str]:
        return list(getattr(self._hook, "_last_submit_log_lines", ()))

    def _report(self, context: Context, workspace: Workspace, request: RefreshRequest, version: Version) -> dict[str, Any]:
        refresh = recorded_refresh(workspace, version)
        if refresh is None and version.partitions is None:
            version = replace(version, partitions=requested_partitions(request))
        return report_commit(context, self, version, refresh, request.schedule_time)
