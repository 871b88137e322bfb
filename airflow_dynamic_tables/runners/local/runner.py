"""Runner on the local server, which is started on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from airflow_dynamic_tables.clients.processes import machine
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.runners.base import NO_VARIABLES, Runner
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.relay import relayed
from airflow_dynamic_tables.runners.local.server import running, start
from airflow_dynamic_tables.runners.registry import CONNECT_SCHEME, end_session, runner_for


def is_there(installation: str) -> bool:
    """Return whether a local server of an installation runs, even if it hangs; False on a machine that cannot have one."""
    return bool(machine()) and running(ServerFolder.of(installation)) is not None


class LocalServerRunner(Runner):
    """Runs jobs on the local server of an installation.

    :param jars: files for the class path of a new server, separated by commas.
    :raises ConfigurationError: names a setting of the definition that does not apply to a server.
    """

    def __init__(
        self, settings: SparkSettings, installation: str, on_line: Callable[[str], None], jars: str | None = None
    ) -> None:
        self._settings = settings
        self._installation = installation
        self._on_line = on_line
        self._jars = jars
        self._is_stopped = False
        # Validates the settings before a server is started or waited for; the address is set by the first job.
        self._runner = runner_for(settings, f"{CONNECT_SCHEME}localhost", on_line)

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        with self._on_server() as runner:
            runner.run(plan, environment)

    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:
        with self._on_server() as runner:
            return runner.run_query_tests(tests, environment)

    @contextmanager
    def _on_server(self) -> Iterator[Runner]:
        """The runner for the server, which is started if necessary; no other process ever receives data."""
        folder = ServerFolder.of(self._installation)
        server, is_new = start(folder, Options(jars=self._jars))
        process = folder.process()
        if process is None:
            raise JobFailedError("The Spark server of this machine ended before the job began; refresh again.")
        self._on_line(f"Spark server {server.address} of this machine{', started now' if is_new else ''}")
        with relayed(folder.path, process, server.port) as (target, relay), folder.session() as session:
            address = f"{server.address}/;token={server.token};session_id="
            for left in folder.left_sessions():
                end_session(f"{address}{left}", target)
            self._runner = runner_for(self._settings, f"{address}{session}", self._on_line, target)
            if self._is_stopped:
                raise JobFailedError("The job was stopped before it began.")
            try:
                yield self._runner
            except JobFailedError:
                relay.refuse_stranger()
                raise

    def stop(self) -> None:
        self._is_stopped = True
        self._runner.stop()
