"""Runner for a Spark Connect server: each job runs in this process, in its own session, and its queries on the server."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import grpc
from pyspark import __version__
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession as AnySparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.shell.progress import StageInfo

from airflow_dynamic_tables.clients.files import list_files, open_file, plain_path, write_text
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DynamicTableError,
    JobFailedError,
    JobMisfitError,
    SchemaEvolutionError,
)
from airflow_dynamic_tables.jobs.batch import refresh
from airflow_dynamic_tables.jobs.connect_driver import REDACTION, ConnectDriver, redaction
from airflow_dynamic_tables.jobs.messages import message
from airflow_dynamic_tables.jobs.query_tests import run_query_tests
from airflow_dynamic_tables.jobs.spark_3 import is_spark_3
from airflow_dynamic_tables.redaction import HIDDEN
from airflow_dynamic_tables.runners.base import NO_VARIABLES, Runner, refuse_templates, tasks_done

_LONGEST_PAUSE_MS = 2_000
"""Longest pause in milliseconds between attempts to reach a server; Spark's own default grows to a minute."""

_ONE_MORE_TRY = 1.0
"""Timeout in seconds of the call that determines why there is no connection."""

_CERTIFICATES = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""gRPC's variable for a file of trusted certificates that replaces the public ones."""

_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")

_AT_ONCE = ("/Config", "/Interrupt", "/ReleaseSession", "/ReleaseExecute", "/FetchErrorDetails")
"""Calls that a healthy server answers immediately, regardless of its load."""


class _ConnectChannel(DefaultChannelBuilder):
    """The channel of one session.

    :param url: ``sc://host:port/;token=...``, as for Spark's own client.
    :param patience: seconds without a response after which the server is considered dead.
    :param target: a Unix socket that leads to the server, in gRPC's format, instead of the address.
    :raises ConfigurationError: when the address is invalid.
    """

    def __init__(self, url: str, patience: float, target: str | None = None) -> None:
        try:
            super().__init__(url)
        except (PySparkException, ValueError):
            # Without the cause: it may quote the address, which contains the token.
            raise ConfigurationError("The address of the Spark Connect server is none; write sc://host:port.") from None
        self.patience = patience
        self._target = target
        self.add_interceptor(_Deadline(patience))
        if self.host in _THIS_MACHINE:
            # A proxy of the environment does not apply to local servers.
            self.setChannelOption("grpc.enable_http_proxy", 0)

    def toChannel(self) -> grpc.Channel:  # noqa: N802 - PySpark's name
        channel = super().toChannel() if self._target is None else self._on_socket(self._target)
        try:
            grpc.channel_ready_future(channel).result(timeout=self.patience)
        except grpc.FutureTimeoutError:
            why = _last_failure(channel)
            channel.close()
            spoken = "with TLS" if self.use_ssl or (self.secure and self.host != "localhost") else "without TLS"
            raise JobFailedError(
                f"The Spark Connect server {self.endpoint} did not answer within {self.patience:g} seconds ({spoken}); check "
                "that it runs, the host, port and use_ssl of the connection, and with TLS that its certificate is known here "
                f"({_CERTIFICATES}). gRPC says: {why}"
            ) from None
        return channel

    def _on_socket(self, target: str) -> grpc.Channel:
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        if self.token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(self.token))
        return self._secure_channel(target, credentials)

    def retries(self) -> DefaultPolicy:
        tries = max(3, int(self.patience * 1_000 / _LONGEST_PAUSE_MS))
        return DefaultPolicy(max_retries=tries, max_backoff=_LONGEST_PAUSE_MS, max_server_retry_delay=_LONGEST_PAUSE_MS)

    def without_token(self, text: str) -> str:
        return text.replace(self.token, HIDDEN) if self.token else text


def _last_failure(channel: grpc.Channel) -> str:
    try:
        channel.unary_unary("/spark.connect.SparkConnectService/Config")(b"", timeout=_ONE_MORE_TRY)
    except grpc.RpcError as error:
        return str(error.details())
    return "it answers now"


class _Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc ships no types
    """Sets a deadline for calls that are answered immediately."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def intercept_unary_unary(self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any) -> Any:
        """Forward a call, with a deadline if it has none."""
        details = client_call_details
        if details.timeout is None and details.method.endswith(_AT_ONCE):
            details = details._replace(timeout=self._seconds)
        return continuation(details, request)


class WorkerDriver(ConnectDriver):
    """A driver with the file systems that this worker can access. The folder is for copies of files."""

    def __init__(self, spark: AnySparkSession, folder: Path, passwords: Mapping[str, str], tell: Callable[[str], None]) -> None:
        super().__init__(spark, passwords, tell)
        self._folder = folder

    def write_text(self, uri: str, text: str) -> None:
        write_text(uri, text)

    def list_files(self, uri: str) -> list[tuple[str, int]]:
        root = plain_path(uri)
        try:
            found = list_files(uri)
        except FileNotFoundError:
            return []
        return sorted((uri + plain_path(name)[len(root) :], int(info.get("size") or 0)) for name, info in found.items())

    def local_copy(self, uri: str) -> Path:
        copy = self._folder / uri.rpartition("/")[2]
        with open_file(uri) as stream:
            copy.write_bytes(stream.read())
        return copy


class _TaskProgress:
    """Reports the number of finished tasks whenever it changes, and measures how long the job has waited for a core."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = ""
        self._waits_since: float | None = None

    def __call__(self, stages: Iterable[StageInfo] | None, inflight_tasks: int, done: bool, **_others: object) -> None:
        known = list(stages or ())
        finished = sum(stage.num_completed_tasks for stage in known)
        planned = sum(stage.num_tasks for stage in known)
        if done or inflight_tasks or finished == planned:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        line = tasks_done(finished, planned)
        if known and line != self._told:
            self._told = line
            self._tell(line)

    def seconds_without_core(self) -> float:
        since = self._waits_since
        return 0.0 if since is None else time.monotonic() - since


@contextmanager
def folder_for_modules() -> Iterator[Path]:
    """A folder whose modules can be imported during the body; the next job may have other modules of the same names."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        finally:
            # Iterate over copies and remove items one by one, because other threads may add their own.
            for path in sys.path.copy():
                if path.startswith(folder):
                    sys.path.remove(path)
            for name, module in sys.modules.copy().items():
                if str(getattr(module, "__file__", None)).startswith(folder):
                    sys.modules.pop(name, None)


_PATIENCE = 60.0
"""Seconds without a response after which a server is considered dead; pauses for garbage collection are shorter."""

_LONGEST_WAIT_FOR_CORES = 1_800.0
"""Maximum seconds that a job waits while none of its tasks runs.

A busy server assigns a core much earlier. Otherwise its cores are held by a query without end, or by orphaned tasks.
"""

_PASSWORDS = r'(?s)key: "password"\s+value: "(?:[^"\\]|\\.)*"'
"""The password of a JDBC source in the text of a request, which the server's event log contains completely."""

_FAREWELL = 1.5
"""Maximum seconds for ending a session: the server may be dead, and Airflow kills a stopped task within five seconds."""

_OWN_SETTINGS = ("conn_id", "conf", "jars")
"""Settings of a definition that apply to a session; all others apply to the process that spark-submit starts."""

_ENDING = 5.0
"""Timeout in seconds for ending the session of a dead client."""


class SparkConnectRunner(Runner):
    """Runs jobs in this process against a server. Every job has its own session, which ends with it.

    :param url: ``sc://host:port/;token=...``.
    :param patience: seconds without a response after which the server is considered dead.
    :param target: a Unix socket that leads to the server, in gRPC's format; by default the server is reached at its address.
    :raises ConfigurationError: names a setting that does not apply to a server.
    """

    def __init__(
        self,
        settings: SparkSettings,
        url: str,
        on_line: Callable[[str], None] = lambda _line: None,
        patience: float = _PATIENCE,
        target: str | None = None,
    ) -> None:
        refuse_templates(settings)
        _refuse_settings_of_submit(settings)
        self._settings = settings
        self._url = url
        self._on_line = on_line
        self._patience = patience
        self._target = target
        self._lock = threading.RLock()  # stop() may be called by a signal handler of the thread that holds it
        self._session: SparkSession | None = None
        self._end: str | None = None
        self._application_id: str | None = None

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        with self._driven(environment) as (spark, driver):
            result = refresh(spark, plan, driver)
            self._on_line(f"Refresh of {plan.identifier}: {result.rows} rows, {len(result.files)} files, {result.bytes} bytes")

    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:
        with self._driven(environment) as (spark, driver):
            return run_query_tests(spark, tests, driver)

    @contextmanager
    def _driven(self, environment: Mapping[str, str]) -> Iterator[tuple[AnySparkSession, ConnectDriver]]:
        """A session and its driver for the job in the body; errors are converted to those of a runner."""
        self._end = self._application_id = None
        channel = _ConnectChannel(self._url, self._patience, self._target)
        try:
            with _connect_mode(), folder_for_modules() as folder, self._opened(channel) as spark:
                driver = WorkerDriver(spark, folder, environment, self._on_line)
                self._application_id = driver.application_id
                self._on_line(f"Spark application {self._application_id} of {channel.endpoint}")
                self._hide_passwords(spark, bool(environment))
                self._apply_settings(spark)
                self._add_jars(driver)
                yield spark, driver
        except SchemaEvolutionError as error:
            raise JobMisfitError(str(error), application_id=self._application_id) from None
        except DynamicTableError:
            raise
        except Exception as error:
            # Without the chain: Spark's errors may quote values of the plan, such as a password.
            raise self._failure(error, channel, environment) from None

    def stop(self) -> None:
        self._finish("The job was stopped.")

    def _finish(self, why: str) -> None:
        """End the session from outside; calls that wait in it get an error."""
        with self._lock:
            session = self._session
            self._end = self._end or why
        if session is not None:
            _farewell(session)

    @contextmanager
    def _opened(self, channel: _ConnectChannel) -> Iterator[AnySparkSession]:
        spark = SparkSession.builder.channelBuilder(channel).create()
        spark.client.set_retry_policies([channel.retries()])
        with self._lock:
            self._session = spark
        done = threading.Event()
        progress = _TaskProgress(self._on_line)
        watcher = threading.Thread(target=self._watch, args=(spark, channel, progress, done), daemon=True)
        try:
            if self._end is not None:
                raise JobFailedError(self._end)
            watcher.start()
            _greet(spark, channel)
            spark.registerProgressHandler(progress)  # type: ignore[arg-type]  # it is only called
            yield cast(AnySparkSession, spark)  # the classes have the same interface but no common base
            # A server logs requests that it still holds at the end of a session completely, including passwords.
            wait(spark.client._release_futures, _FAREWELL)
        except BaseException:
            done.set()
            _farewell(spark)
            raise
        finally:
            done.set()
            with self._lock:
                self._session = None
            spark.stop()
            # PySpark registers an exit handler that keeps every client alive; a loop would accumulate thousands.
            atexit.unregister(spark.client._on_exit)

    def _watch(self, spark: SparkSession, channel: _ConnectChannel, progress: _TaskProgress, done: threading.Event) -> None:
        """Poll the server: a job would wait forever for a dead server, or for one whose cores are all occupied."""
        is_told = False
        while not done.wait(self._patience / 6):
            waited = progress.seconds_without_core()
            if waited > _LONGEST_WAIT_FOR_CORES:
                self._finish(
                    f"The Spark Connect server {channel.endpoint} gave this job no core for {_LONGEST_WAIT_FOR_CORES:g} seconds: "
                    "other queries hold them, or tasks that do not hear that they were cancelled; look at its jobs, or restart "
                    "it."
                )
                return
            if waited > self._patience / 6 and not is_told:
                self._on_line(
                    f"Spark: no task of this job runs since {waited:.0f} s; others hold the cores of {channel.endpoint}"
                )
            is_told = waited > self._patience / 6
            try:
                spark.conf.get("spark.app.id", "")
            except Exception:  # any error: the server does not answer a basic call
                if not done.is_set():
                    self._finish(f"The Spark Connect server {channel.endpoint} is gone, or forgot this session; refresh again.")
                return

    def _hide_passwords(self, spark: AnySparkSession, has_passwords: bool) -> None:
        known = redaction(spark)
        if known is not None:
            spark.conf.set(REDACTION, f"{_PASSWORDS}|{known}" if known else _PASSWORDS)
        elif has_passwords:
            raise ConfigurationError(
                f"Spark {spark.version} at this address hides the value of its {REDACTION}, so that the password of this job "
                "cannot be added to it, and its log would show the password; take the words secret, password and token out of "
                "that value, or refresh this table through spark-submit."
            )

    def _apply_settings(self, spark: AnySparkSession) -> None:
        for name, value in self._settings.conf.items():
            try:
                spark.conf.set(name, value)
            except PySparkException as error:
                raise ConfigurationError(f"spark.conf.{name} cannot be set in a session of a server: {message(error)}") from None

    def _add_jars(self, driver: ConnectDriver) -> None:
        for jar in filter(None, map(str.strip, (self._settings.jars or "").split(","))):
            try:
                driver.add_jar(jar)
            except OSError as error:
                raise ConfigurationError(
                    f"spark.jars of the definition names {jar}, which this worker cannot read ({error.strerror or error}); with "
                    "a Spark Connect server jars come from the worker."
                ) from error

    def _failure(self, error: Exception, channel: _ConnectChannel, environment: Mapping[str, str]) -> JobFailedError:
        if self._end is not None:
            return JobFailedError(self._end, application_id=self._application_id)
        words = channel.without_token(message(error))
        for secret in filter(None, environment.values()):
            words = words.replace(secret, HIDDEN)
        return JobFailedError(words, application_id=self._application_id)


def end_session(url: str, target: str | None = None) -> None:
    """End a session of a dead client and its queries, which would occupy cores until the server abandons them.

    :param url: of the server, with the ``session_id``.
    """
    with suppress(Exception):  # on failure the server ends it itself after a minute
        spark = SparkSession.builder.channelBuilder(_ConnectChannel(url, _ENDING, target)).create()
        _farewell(spark)
        spark.stop()  # otherwise PySpark treats the closed session as the active one of this thread, and the next job fails
        atexit.unregister(spark.client._on_exit)


def _refuse_settings_of_submit(settings: SparkSettings) -> None:
    """Check that all settings apply to a session; settings of the server's process must be set when the server is started."""
    for each in fields(settings):
        if each.name not in _OWN_SETTINGS and getattr(settings, each.name):
            raise ConfigurationError(
                f"spark.{each.name} is for spark-submit, and connection {settings.conn_id!r} leads to a Spark Connect server, "
                "which runs already; give it to the server, and take it out of the definition."
            )
    for name in settings.conf:
        if not name.startswith("spark.sql."):
            raise ConfigurationError(
                f"spark.conf.{name} cannot be set in a session of a server; start the Spark Connect server with it, and take it "
                "out of the definition."
            )


def _greet(spark: SparkSession, channel: _ConnectChannel) -> None:
    try:
        if is_spark_3(spark.version):
            raise ConfigurationError(
                f"The Spark Connect server {channel.endpoint} is Spark {spark.version}, which does not understand the statements "
                f"of this client, {__version__}; connect to Spark 4.0 or later, or refresh this table through spark-submit."
            )
    except SparkConnectGrpcException as error:
        if error.getGrpcStatusCode() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise ConfigurationError(
                f"The Spark Connect server {channel.endpoint} refuses the token; check the password of the connection."
            ) from None
        raise


def _farewell(spark: SparkSession) -> None:
    """Interrupt a session's queries and close it, in bounded time. Uses a thread, because the caller may be a signal handler."""

    def say_it() -> None:
        spark.client.set_retry_policies([])
        with suppress(Exception):
            spark.interruptAll()
        with suppress(Exception):
            spark.client.release_session()
        with suppress(Exception):
            spark.client.close()

    thread = threading.Thread(target=say_it, daemon=True)
    thread.start()
    thread.join(_FAREWELL)
    with suppress(Exception):
        spark.client.close()


_USERS = threading.Lock()
_users = 0


@contextmanager
def _connect_mode() -> Iterator[None]:
    """Switch PySpark's functions to Spark Connect during the body, in all threads; the variable is unset afterwards."""
    global _users
    with _USERS:
        _users += 1
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        yield
    finally:
        with _USERS:
            _users -= 1
            if not _users:
                os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
