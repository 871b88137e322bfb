"""A Spark Connect server: the job runs in this process, in a session of its own, and its queries on the server."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import cast

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession as AnySparkSession
from pyspark.sql.connect.session import SparkSession

from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcomes, QueryTestPlans
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
from airflow_dynamic_tables.jobs.drivers.connect import ConnectDriver
from airflow_dynamic_tables.jobs.messages import message
from airflow_dynamic_tables.jobs.query_tests.running import run_query_tests
from airflow_dynamic_tables.redaction import HIDDEN
from airflow_dynamic_tables.runners.base import NO_VARIABLES, Runner, refuse_templates
from airflow_dynamic_tables.runners.connect_channel import ConnectChannel
from airflow_dynamic_tables.runners.connect_surroundings import Progress, WorkerFiles, folder_for_modules

_PATIENCE = 60.0
"""Seconds after which a server that does not answer counts as gone. A pause for garbage collection is shorter."""

_LONGEST_WAIT_FOR_CORES = 1_800.0
"""Seconds that a job may wait while none of its tasks runs. A server that is merely busy gives it a core long before. Those of
another one are held by a query without end, or by tasks that nobody wants any more."""

_REDACTION = "spark.sql.redaction.string.regex"
"""The setting by which Spark hides words in what it records of a query."""

_PASSWORDS = r'(?s)key: "password"\s+value: "(?:[^"\\]|\\.)*"'
"""How the password of a JDBC source stands in the text of a request, which the server's log of events has whole."""

_FAREWELL = 1.5
"""Seconds that the end of a session may take: nobody knows whether the server still answers, and Airflow kills a task that it
stopped within five seconds."""

_OWN_SETTINGS = ("conn_id", "conf", "jars")
"""Settings of a definition that a session can be given, too; all others are those of the process that spark-submit starts."""

_ENDING = 5.0
"""Seconds after which a server that does not answer need not end what a dead client left."""


class SparkConnectRunner(Runner):
    """Runs jobs in this process against a server. Every job has a session of its own, which ends with it.

    :param settings: of the definition; what a server cannot be told is refused.
    :param url: ``sc://host:port/;token=...``.
    :param on_line: gets what the job says.
    :param patience: seconds after which a server that does not answer counts as gone.
    :param target: a Unix socket that leads to the server, as gRPC writes it; else the server is reached at its address.
    :raises ConfigurationError: names the setting that a server cannot be told.
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
        refuse_settings_of_submit(settings)
        self._settings = settings
        self._url = url
        self._on_line = on_line
        self._patience = patience
        self._target = target
        self._lock = threading.RLock()  # stop() may interrupt whoever holds it
        self._session: SparkSession | None = None
        self._end: str | None = None
        self._application_id: str | None = None

    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        """See :meth:`Runner.run`."""
        with self._driven(environment) as (spark, driver):
            result = refresh(spark, plan, driver)
            self._on_line(f"Refresh of {plan.identifier}: {result.rows} rows, {len(result.files)} files, {result.bytes} bytes")

    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:
        """See :meth:`Runner.run_query_tests`."""
        with self._driven(environment) as (spark, driver):
            return run_query_tests(spark, tests, driver)

    @contextmanager
    def _driven(self, environment: Mapping[str, str]) -> Iterator[tuple[AnySparkSession, ConnectDriver]]:
        """A session and the driver of it for the job in the body, whose errors come out as those of a runner."""
        self._end = self._application_id = None
        channel = ConnectChannel(self._url, self._patience, self._target)
        try:
            with _connect_mode(), folder_for_modules() as folder, self._opened(channel) as spark:
                driver = ConnectDriver(spark, WorkerFiles(folder), environment, self._on_line)
                self._application_id = driver.application_id
                self._on_line(f"Spark application {self._application_id} of {channel.endpoint}")
                self._apply_settings(spark)
                self._add_jars(driver)
                yield spark, driver
        except SchemaEvolutionError as error:
            raise JobMisfitError(str(error), application_id=self._application_id) from None
        except DynamicTableError:
            raise
        except Exception as error:
            # Without the chain: Spark's errors may repeat what the plan was given, and that may be a password.
            raise self._failure(error, channel, environment) from None

    def stop(self) -> None:
        """See :meth:`Runner.stop`."""
        self._finish("The job was stopped.")

    def _finish(self, why: str) -> None:
        """End the session from outside; whatever waits for an answer in it gets an error."""
        with self._lock:
            session = self._session
            self._end = self._end or why
        if session is not None:
            _farewell(session)

    @contextmanager
    def _opened(self, channel: ConnectChannel) -> Iterator[AnySparkSession]:
        """A session of this job, watched while the body runs."""
        spark = SparkSession.builder.channelBuilder(channel).create()
        spark.client.set_retry_policies([channel.retries()])
        with self._lock:
            self._session = spark
        done = threading.Event()
        progress = Progress(self._on_line)
        watcher = threading.Thread(target=self._watch, args=(spark, channel, progress, done), daemon=True)
        try:
            if self._end is not None:
                raise JobFailedError(self._end)
            watcher.start()
            _greet(spark, channel)
            spark.registerProgressHandler(progress)  # type: ignore[arg-type]  # it only calls it
            yield cast(AnySparkSession, spark)  # both have one interface, and no class in common
            # Whatever request a server still holds at the end of its session it writes into its log, whole, with a password.
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
            # PySpark asks to be called at the end of the process, and so keeps every client until then: of a loop, thousands.
            atexit.unregister(spark.client._on_exit)

    def _watch(self, spark: SparkSession, channel: ConnectChannel, progress: Progress, done: threading.Event) -> None:
        """Ask the server again and again whether it is there: a silent one would keep the job waiting for ever, and so would one
        that others hold."""
        is_told = False
        while not done.wait(self._patience / 6):
            waited = progress.seconds_without_core()
            if waited > _LONGEST_WAIT_FOR_CORES:
                self._finish(
                    f"The Spark Connect server {channel.endpoint} gave this job no core for {_LONGEST_WAIT_FOR_CORES:g} seconds: "
                    "other queries hold them, or tasks that do not hear that they were cancelled; look at what it runs, or start "
                    "it anew."
                )
                return
            if waited > self._patience / 6 and not is_told:
                self._on_line(
                    f"Spark: no task of this job runs since {waited:.0f} s; others hold the cores of {channel.endpoint}"
                )
            is_told = waited > self._patience / 6
            try:
                spark.conf.get("spark.app.id", "")
            except Exception:  # whatever it is: the server does not answer a question that any server answers
                if not done.is_set():
                    self._finish(f"The Spark Connect server {channel.endpoint} is gone, or forgot this session; refresh again.")
                return

    def _apply_settings(self, spark: AnySparkSession) -> None:
        known = spark.conf.get(_REDACTION, None)
        spark.conf.set(_REDACTION, f"{_PASSWORDS}|{known}" if known else _PASSWORDS)
        for name, value in self._settings.conf.items():
            try:
                spark.conf.set(name, value)
            except PySparkException as error:
                raise ConfigurationError(f"spark.conf.{name} cannot be set in a session of a server: {message(error)}") from None

    def _add_jars(self, driver: ConnectDriver) -> None:
        """Give the session the jars of the definition, whatever the server was started with."""
        for jar in filter(None, map(str.strip, (self._settings.jars or "").split(","))):
            try:
                driver.add_jar(jar)
            except OSError as error:
                raise ConfigurationError(
                    f"spark.jars of the definition names {jar}, which this worker cannot read ({error.strerror or error}); with "
                    "a Spark Connect server jars come from the worker."
                ) from error

    def _failure(self, error: Exception, channel: ConnectChannel, environment: Mapping[str, str]) -> JobFailedError:
        if self._end is not None:
            return JobFailedError(self._end, application_id=self._application_id)
        words = channel.without_token(message(error))
        for secret in filter(None, environment.values()):
            words = words.replace(secret, HIDDEN)
        return JobFailedError(words, application_id=self._application_id)


def end_session(url: str, target: str | None = None) -> None:
    """End a session that a dead client left, with its queries, which would hold the cores until the server gives them up.

    :param url: of the server, with the ``session_id``; :param target: as of :class:`SparkConnectRunner`.
    """
    with suppress(Exception):  # then the server does it by itself, a minute later
        spark = SparkSession.builder.channelBuilder(ConnectChannel(url, _ENDING, target)).create()
        _farewell(spark)
        spark.stop()  # or PySpark takes the closed session for the active one of this thread, and the next job finds none
        atexit.unregister(spark.client._on_exit)


def refuse_settings_of_submit(settings: SparkSettings) -> None:
    """Check that a server can be told all settings: what a process is started with belongs to whoever starts the server.

    :raises ConfigurationError: names what it cannot be told.
    """
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


def _greet(spark: SparkSession, channel: ConnectChannel) -> None:
    """Ask for the version, which shows whether the server lets this client in.

    :raises ConfigurationError: when it does not.
    """
    try:
        _ = spark.version
    except SparkConnectGrpcException as error:
        if error.getGrpcStatusCode() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise ConfigurationError(
                f"The Spark Connect server {channel.endpoint} refuses the token; check the password of the connection."
            ) from None
        raise


def _farewell(spark: SparkSession) -> None:
    """Interrupt what a session runs and close it, in bounded time. In a thread: the caller may be a signal handler."""

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
    """PySpark's functions are those of Spark Connect while the body runs, in any thread; a later process inherits nothing."""
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
