"""The Spark job of a task, and its termination when the task is stopped."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, Context
from airflow.providers.common.compat.version_compat import get_base_airflow_version_tuple

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError, JobFailedError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.hooks.spark import connect_url, is_local_server, spark_connection
from airflow_dynamic_tables.operators.links import ShowsSpark
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner
from airflow_dynamic_tables.runners.registry import runner_for
from airflow_dynamic_tables.runners.spark_home import find_java, find_spark_submit, spark_variables, variables_set
from airflow_dynamic_tables.runners.spark_submit import application_file, application_zip, job_failure, submit_failure
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.settling import abort

log = logging.getLogger(__name__)

NEW_JOBS = {"durable": False} if get_base_airflow_version_tuple() >= (3, 3, 0) else {}
"""Arguments of tasks whose tries submit a job each: a later try would find a durable one, which does not write to its stage."""


def spark_arguments(table: DynamicTable, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Spark settings of a table as operator arguments.

    :param defaults: the ``default_args`` of its DAG; the settings are added to their ``conf``, as the Spark hook does.
    """
    spark = {field.name: value for field in fields(table.spark) if (value := getattr(table.spark, field.name))}
    return {**spark, "conf": {**(defaults.get("conf") or {}), **table.spark.conf}}


_DEATH_SECONDS = 1
"""Seconds to wait for the end of a process after SIGKILL, because its later writes would outlive the stage."""

_ABORT_SECONDS = 3
"""Seconds that ``on_kill`` waits for the abort: Airflow sends SIGKILL five seconds after SIGTERM."""


class RunsSpark(ShowsSpark):
    """An operator with a stage and a Spark job; both are removed if the task is stopped."""

    catalog_conn_id: str
    catalogs_file: Path | None
    _settings: WorkspaceSettings | None = None
    _token: str | None = None
    _runner: Runner | None = None
    _killed = False

    def catalog_hook(self) -> DynamicTableCatalogHook:
        """Return the hook for ledger and catalogs."""
        return DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file)

    def on_kill(self) -> None:
        """Kill Spark, then abort the stage within Airflow's five seconds; best effort."""
        self._killed = True
        self._kill_spark()
        if self._settings is None or self._token is None:
            return
        # In a thread, because this runs in a signal handler, and the interrupted code may hold a lock.
        thread = threading.Thread(target=self._abort, args=(self._settings, self._token), daemon=True)
        thread.start()
        thread.join(_ABORT_SECONDS)

    def _abort(self, settings: WorkspaceSettings, token: str) -> None:
        with suppress(DynamicTableError), open_workspace(settings) as workspace:
            abort(workspace, token, "the Airflow task was stopped")

    def _kill_spark(self) -> None:
        if self._runner is not None:
            self._runner.stop()
        if self._hook is None:
            return
        # Airflow's logger raises without a supervisor, before anything is killed.
        self._hook._log = log  # type: ignore[assignment]  # their type is wider
        with suppress(OSError):  # a worker without the command that kills an application of YARN: the job ends itself
            super().on_kill()
        if process := self._spark_submit():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_SECONDS)

    def _spark_submit(self) -> subprocess.Popen[str] | None:
        return getattr(self._hook, "_submit_sp", None)

    def _find_spark(self) -> None:
        """Check the Spark connection: a server has no requirements here, other connections need Java and spark-submit."""
        connection = spark_connection(self._conn_id)
        if is_local_server(connection):
            jars = connection.extra_dejson.get("jars")
            self._runner = LocalServerRunner(self._spark_settings(), self.catalog_hook().settings().database_url, self.hear, jars)
            return
        if url := connect_url(connection):
            self._runner = runner_for(self._spark_settings(), url, self.hear)
            return
        environ = {**os.environ, **(self.env_vars or {})}
        find_java(environ)
        binary = self._spark_binary or connection.extra_dejson.get("spark-binary") or "spark-submit"
        self._spark_binary = find_spark_submit(environ) if binary == "spark-submit" else shutil.which(binary)
        if self._spark_binary is None:
            raise ConfigurationError(f"{binary} of Spark connection {self._conn_id!r} is not on the PATH of this worker.")

    def _spark_settings(self) -> SparkSettings:
        given = {
            field.name: getattr(self, field.name, None) or getattr(self, f"_{field.name}", None)
            for field in fields(SparkSettings)
        }
        return SparkSettings(**{name: value for name, value in given.items() if value})

    def _submit_plan(self, context: Context, workspace: Workspace, plan: RefreshPlan) -> None:
        self._token = plan.token  # each commit of a task has its own
        self._submit(context, workspace, plan)

    def _submit(self, context: Context, workspace: Workspace, plan: RefreshPlan) -> None:
        if self._killed:  # Airflow does not interrupt execute, so Spark would begin after the stage was aborted
            raise JobFailedError("The task was stopped before Spark began.")
        if self._runner is not None:
            self._runner.run(plan, job_environment(workspace, plan))
            return
        self._hook = None  # of a previous job of this task, which would be submitted again
        # Only once for all turns of this task.
        self.py_files = ",".join(dict.fromkeys(filter(None, (str(application_zip()), *(self.py_files or "").split(",")))))
        self.application = str(application_file())
        self.application_args = ["--plan", plan.plan_location]
        # Not by env_vars, which are also sent to the cluster.
        environment = {**job_environment(workspace, plan), **spark_variables(os.environ)}
        try:
            with variables_set(environment):
                super().execute(context)
        except (AirflowException, OSError, RuntimeError, ValueError) as error:
            raise job_failure(plan, self._log_tail()) or self._submit_failure(error) from error
        except AirflowTaskTimeout as error:
            error.args = (f"The task did not end within its execution timeout ({self.execution_timeout}).",)
            raise
        finally:
            # After a timeout or a log error, on_kill is called too late or not at all, and the stage is deleted next.
            if (process := self._spark_submit()) and process.poll() is None:
                self._kill_spark()

    def _submit_failure(self, error: Exception) -> JobFailedError:
        process = self._spark_submit()
        tail = self._log_tail()
        return submit_failure(tail, process.returncode) if process and tail else JobFailedError(str(error))

    def _log_tail(self) -> list[str]:
        return list(getattr(self._hook, "_last_submit_log_lines", ()))
