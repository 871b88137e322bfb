"""The Spark job of a task, and its end when the task is stopped."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError, JobFailedError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.hooks.spark import connect_url, is_local_server, spark_connection
from airflow_dynamic_tables.operators.links import ShowsSpark
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.environment import spark_variables, variables_set
from airflow_dynamic_tables.runners.finding import find_java, find_spark_submit
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner
from airflow_dynamic_tables.runners.package import application_file, application_zip
from airflow_dynamic_tables.runners.registry import runner_for
from airflow_dynamic_tables.runners.spark_submit import job_failure, submit_failure
from airflow_dynamic_tables.services.refresh.binding import job_environment
from airflow_dynamic_tables.services.settings import Settings
from airflow_dynamic_tables.services.stages.settling import abort
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

_DEATH_SECONDS = 1
"""How long to wait for the end of a process that got SIGKILL: what it writes after that would outlive its stage."""

_ABORT_SECONDS = 3
"""How long ``on_kill`` waits for the abort: Airflow sends SIGKILL five seconds after SIGTERM."""


class RunsSpark(ShowsSpark):
    """An operator whose task has a stage and a Spark job; when it is stopped, both go."""

    catalog_conn_id: str
    catalogs_file: Path | None
    _settings: Settings | None = None
    _token: str | None = None
    _runner: Runner | None = None
    _killed = False

    def catalog_hook(self) -> DynamicTableCatalogHook:
        """The hook to ledger and catalogs."""
        return DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file)

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
        if self._runner is not None:
            self._runner.stop()
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

    def _find_spark(self) -> None:
        """Check the Spark connection: a server needs nothing else here, every other Java and spark-submit, which is chosen.

        :raises ConfigurationError: when one is missing.
        """
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
        """What this task was given for Spark, by the definition or by whoever made it, its templates rendered."""
        given = {
            field.name: getattr(self, field.name, None) or getattr(self, f"_{field.name}", None)
            for field in fields(SparkSettings)
        }
        return SparkSettings(**{name: value for name, value in given.items() if value})

    def _submit(self, context: Context, workspace: Workspace, plan: RefreshPlan) -> None:
        if self._killed:  # Airflow does not interrupt execute, so Spark would begin after the stage is gone
            raise JobFailedError("The task was stopped before Spark began.")
        if self._runner is not None:
            self._runner.run(plan, job_environment(workspace, plan))
            return
        self._hook = None  # of an earlier job of this task, which it would submit again
        # Once, however many turns this task has.
        self.py_files = ",".join(dict.fromkeys(filter(None, (str(application_zip()), *(self.py_files or "").split(",")))))
        self.application = str(application_file())
        self.application_args = ["--plan", plan.plan_location]
        # Not by env_vars: these also go to the cluster.
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
