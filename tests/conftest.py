"""Fixtures that several folders share, and an Airflow home and a cache of the test run's own."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import settings

from airflow_dynamic_tables.clients.database.engine import Database
from tests.support.connect_server import ConnectServer, running_connect_server
from tests.support.delta_spark import running_delta_spark
from tests.support.disks import wait_for_no_disk
from tests.support.faults.report import FaultReport
from tests.support.metastore import HiveMetastore, running_metastore
from tests.support.postgres import DRIVER, PostgresServer, postgres_binaries, running_postgres
from tests.support.spark import PlainSpark, running_plain_spark
from tests.support.spark_version import PINNED, SPARK_VERSION, spark_of_this_python
from tests.support.suite import (
    is_of_its_contract,
    mark_needs,
    mark_repetitions,
    may_be_quick,
    missing_service,
    order_for_workers,
    record_seconds,
    seconds_by_folder,
    select_part,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.iceberg_rest.apache import ApacheRest
    from tests.support.iceberg_rest.nessie import Nessie
    from tests.support.iceberg_rest.server import IcebergRest
    from tests.support.iceberg_spark import IcebergSpark
    from tests.support.trino import Trino

# Airflow reads its environment when it is imported: before that of any test module.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
# Else a run would leave thousands of analysed definitions in the cache of whoever runs it, and read what earlier runs left.
os.environ["DYNAMIC_TABLES_CACHE"] = f"{_AIRFLOW_HOME}/definitions-cache"
_SCOPES = Path(_AIRFLOW_HOME, "scopes.json")

wait_for_no_disk()

# The same examples on every run: a red build can be repeated, and a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


_FAULTS = FaultReport()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("suite")
    group.addoption("--part", help="the tests of a part: base, quick, commit, or the number of a part of the large ones")
    group.addoption(
        "--record-seconds", action="store_true", help="record the seconds of what runs, by which workers are balanced"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the files that have no quick tests for ``--part quick``."""
    return True if config.option.part == "quick" and not may_be_quick(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what an implementation lacks, mark every test with what it needs to run, and select a part.

    In a worker of pytest-xdist, put what takes longest first.
    """
    chosen = [item for item in items if is_of_its_contract(item)]
    mark_repetitions(chosen)
    for item in chosen:
        mark_needs(item)
    if part := config.option.part:
        chosen = select_part(chosen, part)
    if len(chosen) < len(items):
        others = set(items).difference(chosen)
        config.hook.pytest_deselected(items=list(others))
        items[:] = chosen
    if hasattr(config, "workerinput"):
        order_for_workers(items, Path(config.workerinput["scopes"]))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where to write the scopes of the tests."""
    node.workerinput["scopes"] = str(_SCOPES)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers files, and all tests of a server, in the order that the workers found."""
    from xdist.scheduler import LoadScopeScheduling  # only who asks for workers needs it

    config.option.loadscopereorder = False
    scheduler: Any = LoadScopeScheduling(config, log)
    scheduler._split_scope = lambda nodeid: _scopes()[nodeid]
    return scheduler


@functools.cache
def _scopes() -> dict[str, str]:
    """Read what the workers wrote: all have collected when the first scope is asked for."""
    scopes: dict[str, str] = json.loads(_SCOPES.read_text())
    return scopes


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a worker counted to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = json.dumps(vars(_FAULTS))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - pytest-xdist's signature
    """Add what a worker counted."""
    if counted := getattr(node, "workeroutput", {}).get("faults"):  # nothing of a worker that crashed
        _FAULTS.add(FaultReport(**json.loads(counted)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the tests of faults did and saw, and, when asked for durations, where the time went; record the seconds."""
    sections = {"faults": _FAULTS.lines()}
    seen = itertools.chain.from_iterable(terminalreporter.stats.values())
    reports = [report for report in seen if isinstance(report, pytest.TestReport)]
    if config.option.durations is not None:
        sections["seconds by folder"] = seconds_by_folder(reports)
    if config.option.record_seconds:
        record_seconds(reports)
    for title, lines in sections.items():
        if lines:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def fault_report() -> FaultReport:
    """Where tests count the faults they inject and the polls they make."""
    return _FAULTS


def pytest_unconfigure(config: pytest.Config) -> None:  # noqa: ARG001 - pytest's signature
    """Remove the Airflow home, and the cache in it."""
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def root_logger() -> None:
    """Python's default level, which Airflow lowers for all later tests of the process once it configures its logging."""
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    binaries = postgres_binaries()
    if binaries is None:
        missing_service("needs PostgreSQL: apt-get install -y postgresql")
    with running_postgres(binaries) as server:
        yield server


@pytest.fixture(scope="session")
def java() -> None:
    """Java must be there."""
    if shutil.which("java") is None:
        missing_service("needs Java: apt-get install -y openjdk-17-jre-headless")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:  # noqa: ARG001 - it must be there
    """One Spark session for all tests that need nothing but Spark."""
    from pyspark.sql import SparkSession  # only who needs it waits for it

    if spark_of_this_python() != SPARK_VERSION:
        missing_service("SPARK_HOME names another Spark than the PySpark of this process; unset it")
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **({"spark.jars": str(DRIVER)} if DRIVER.exists() else {}),
    }.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)  # the workers need the libraries that the driver has
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_server(java: None) -> Iterator[ConnectServer]:  # noqa: ARG001 - it must be there
    """A Spark Connect server for all tests that leave it as it is."""
    if spark_of_this_python() != PINNED:
        missing_service("the client of Spark Connect is that of the pinned PySpark")
    with running_connect_server() as server:
        yield server


@pytest.fixture(scope="session")
def hive_metastore(java: None) -> Iterator[HiveMetastore]:  # noqa: ARG001 - it must be there
    """A Hive metastore that keeps its state in Derby."""
    with running_metastore() as metastore:
        yield metastore


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    """A server of Iceberg's REST protocol; whoever uses it empties it first."""
    from tests.support.iceberg_rest.server import running_rest_catalog  # FastAPI and PyIceberg, for those who need them

    with running_rest_catalog(tmp_path_factory.mktemp("iceberg-rest")) as server:
        yield server


@pytest.fixture(scope="session")
def apache_rest(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheRest]:  # noqa: ARG001 - it must be there
    """Iceberg's own REST catalog; whoever uses it empties it first."""
    from tests.support.iceberg_rest.apache import running_apache_rest  # PyIceberg, for those who need it

    with running_apache_rest(tmp_path_factory.mktemp("apache-rest")) as server:
        yield server


@pytest.fixture(scope="session")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """A server of Nessie."""
    from tests.support.iceberg_rest.nessie import running_nessie  # PyIceberg, for those who need it

    with running_nessie(tmp_path_factory.mktemp("nessie")) as server:
        yield server


@pytest.fixture(scope="session")
def plain_spark(hive_metastore: HiveMetastore) -> Iterator[PlainSpark]:
    """A Spark session on the metastore, in a process that has nothing of ours."""
    with running_plain_spark(hive_metastore.uri, hive_metastore.warehouse) as opened:
        yield opened


@pytest.fixture(scope="session")
def iceberg_spark(java: None) -> Iterator[IcebergSpark]:  # noqa: ARG001 - it must be there
    """A Spark session with Iceberg's own library, in a process that has nothing of ours."""
    from tests.support.iceberg_spark import running_iceberg_spark  # SQLAlchemy, for those who need it

    with running_iceberg_spark() as opened:
        yield opened


@pytest.fixture(scope="session")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """A server of Trino; each test has catalogs of its own in it."""
    from tests.support.trino import running_trino  # its client, for those who need it

    with running_trino(tmp_path_factory.mktemp("trino")) as server:
        yield server


@pytest.fixture(scope="session")
def delta_spark(hive_metastore: HiveMetastore) -> Iterator[PlainSpark]:
    """A Spark session with Delta's own library on the metastore, in a process that has nothing of ours."""
    with running_delta_spark(hive_metastore) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres_driver() -> Path:
    """The jar of PostgreSQL's JDBC driver."""
    if not DRIVER.exists():
        missing_service("needs PostgreSQL's JDBC driver: apt-get install -y libpostgresql-jdbc-java")
    return DRIVER


@pytest.fixture(scope="session")
def hive_metastore_on_postgres(
    java: None,  # noqa: ARG001 - it must be there
    postgres: PostgresServer,
    postgres_driver: Path,  # noqa: ARG001
) -> Iterator[HiveMetastore]:
    """A Hive metastore that keeps its state in PostgreSQL."""
    url = postgres.create_database("metastore").replace("postgres@", "")
    with running_metastore(f"jdbc:{url}?user=postgres") as metastore:
        yield metastore


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite state at the newest schema, to copy: migrating one for every test takes longer than the test."""
    path = tmp_path_factory.mktemp("state") / "state.db"
    Database(f"sqlite:///{path}").upgrade()
    return path


@pytest.fixture(scope="session")
def postgres_state(postgres: PostgresServer) -> Callable[[], str]:
    """Makes one more empty PostgreSQL state at the newest schema: a copy, see :func:`empty_state`."""
    with closing(Database(postgres.create_database("state_template"))) as template:
        template.upgrade()
    return lambda: postgres.create_database(f"state_{uuid4().hex}", template="state_template")


@pytest.fixture(scope="session")
def tables_url(postgres: PostgresServer) -> str:
    """A database that all tests of tables in PostgreSQL share: each has a schema of its own."""
    return postgres.create_database("tables")


@pytest.fixture(scope="session")
def catalogs_url(postgres_state: Callable[[], str]) -> str:
    """A database that all tests of ``sql`` catalogs share: each has a catalog name of its own."""
    return postgres_state()
