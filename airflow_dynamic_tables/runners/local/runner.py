"""Refreshes on the local server: found or started when a job needs it, so that nobody has to look after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_dynamic_tables.clients.processes import machine
from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import running, start
from airflow_dynamic_tables.runners.registry import CONNECT_SCHEME, runner_for


def is_there(installation: str) -> bool:
    """Whether a local server of an installation runs, or hangs and would be replaced; never on a machine that cannot have one.

    :param installation: the URL of its database.
    """
    return bool(machine()) and running(ServerFolder.of(installation)) is not None


class LocalServerRunner(Runner):
    """Runs jobs on the local server of an installation.

    :param installation: the URL of its database.
    :param on_line: gets what the job says.
    :param jars: for the class path of the server, when it does not run yet: files, separated by commas.
    :raises ConfigurationError: names a setting of the definition that a server cannot be told.
    """

    def __init__(
        self, settings: SparkSettings, installation: str, on_line: Callable[[str], None], jars: str | None = None
    ) -> None:
        self._settings = settings
        self._installation = installation
        self._on_line = on_line
        self._jars = jars
        self._is_stopped = False
        # Settings are looked at before anything is started or waited for; the address comes with the first job.
        self._runner = runner_for(settings, f"{CONNECT_SCHEME}localhost", on_line)

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        """See :meth:`Runner.run`."""
        self._on_server().run(plan, environment)

    def run_query_tests(self, tests: QueryTestPlans) -> QueryTestOutcomes:
        """See :meth:`Runner.run_query_tests`."""
        return self._on_server().run_query_tests(tests)

    def _on_server(self) -> Runner:
        """The runner for the server, which is started if it does not run."""
        server, is_new = start(ServerFolder.of(self._installation), Options(jars=self._jars))
        self._on_line(f"Spark server {server.address} of this machine{', started now' if is_new else ''}")
        self._runner = runner_for(self._settings, f"{server.address}/;token={server.token}", self._on_line)
        if self._is_stopped:
            raise JobFailedError("The job was stopped before it began.")
        return self._runner

    def stop(self) -> None:
        """See :meth:`Runner.stop`."""
        self._is_stopped = True
        self._runner.stop()
