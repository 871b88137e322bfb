"""Refreshes of tables in PostgreSQL with a real Spark: made, replaced, failed, at once, and by a user with a password."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.exceptions import ConflictError, QuarantinedError
from airflow_dynamic_tables.runners.spark_home import variables_set
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.verifying import RandomSample, VerifyRequest, verify
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support import jobs
from tests.support.busy_folders import contents_below
from tests.support.postgres import PostgresServer
from tests.support.processes import command_lines

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.usefixtures("postgres_driver")]

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
CATALOGS = """
catalogs:
  - {name: pg, type: jdbc, is-default: true, conn-id: shop_db, connection-params: {warehouse: stages}}
"""
TABLES = """
defaults:
  catalog: pg
  database: SHOPDB
  format: jdbc
  options: {jdbc.writers: 2}
  spark:
    jars: DRIVER
    conf:
      spark.eventLog.enabled: true
      spark.eventLog.compress: false
      spark.eventLog.dir: file://HOME/events
      spark.ui.enabled: false
      spark.sql.shuffle.partitions: 1
      spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=Europe/Berlin
sources:
  - {name: orders, format: jdbc}
dynamic_tables:
  - name: revenue
    comment: Revenue per day
    freshness: 1 day
    partitioned_by: [day]
    query: SELECT day, sum(amount) AS revenue, max(at) AS last FROM orders GROUP BY day
  - name: checked
    freshness: 1 day
    query: SELECT count(*) AS orders FROM orders
    expectations: [{row_count: {min: 2}, action: quarantine}]
"""


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id bigint, day date, amount numeric(10,2), at timestamptz)")
        connection.execute(
            "INSERT INTO orders SELECT i, DATE '2024-03-30' + i::int % 2, i, '2024-03-31 00:30Z' FROM generate_series(1, 4) i"
        )
    return url


@pytest.fixture
def server(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET timezone TO 'UTC'")
        yield connection


@pytest.fixture
def workspace(tmp_path: Path, database: str, postgres_driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    home = tmp_path / "dags"
    home.mkdir()
    (tmp_path / "events").mkdir()
    (home / "catalogs.yaml").write_text(CATALOGS)
    name = database.rpartition("/")[2]
    text = TABLES.replace("SHOPDB", name).replace("DRIVER", str(postgres_driver)).replace("HOME", str(tmp_path))
    (home / "tables.yaml").write_text(text)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", database)
    settings = embedded_settings({"AIRFLOW_HOME": str(tmp_path / "airflow")}, home / "catalogs.yaml")
    with open_workspace(settings) as opened:
        yield opened


@pytest.fixture
def definitions(tmp_path: Path, workspace: Workspace) -> Definitions:
    conventions = Conventions(names_scope({}, workspace.settings.catalogs_file))
    return load_definitions(tmp_path / "dags" / "tables.yaml", conventions=conventions)


@pytest.fixture
def job(spark: SparkSession, workspace: Workspace) -> Callable[[RefreshPlan], None]:
    return job_of(spark, workspace)


def job_of(spark: SparkSession, workspace: Workspace) -> Callable[[RefreshPlan], None]:
    def submit(plan: RefreshPlan) -> None:
        with variables_set(job_environment(workspace, plan)):
            jobs.refresh(spark, plan)

    return submit


def request(definitions: Definitions, name: str, **changes: Any) -> RefreshRequest:
    table = definitions.table(name)
    assert table is not None
    asked = RefreshRequest(table, definitions.sources, NOON, token=uuid4().hex, owner="a test")
    return replace(asked, **changes)


def rows(server: psycopg.Connection[Any]) -> list[tuple[str, int]]:
    found = server.execute("SELECT day::text, revenue::int FROM revenue ORDER BY day").fetchall()
    return [(day, revenue) for day, revenue in found]


def stages(server: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in server.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '%stage%'")]


@pytest.mark.large
def test_a_table_is_made_and_replaced_and_what_fails_leaves_it(
    workspace: Workspace, definitions: Definitions, job: Callable[[RefreshPlan], None], server: psycopg.Connection[Any]
) -> None:
    first = run(workspace, request(definitions, "revenue", full_refresh=True), job)
    assert isinstance(first, Version)
    assert rows(server) == [("2024-03-30", 6), ("2024-03-31", 4)]
    assert server.execute("SELECT obj_description('revenue'::regclass)").fetchone() == ("Revenue per day",)

    server.execute("UPDATE orders SET amount = 10")
    day = PartitionSet.of([{"day": "2024-03-30"}])
    assert isinstance(run(workspace, request(definitions, "revenue", partitions=day), job), Version)
    assert rows(server) == [("2024-03-30", 20), ("2024-03-31", 4)], "the other partition is as it was"

    server.execute("CREATE INDEX by_day ON revenue (day); GRANT SELECT ON revenue TO PUBLIC")
    third = run(workspace, request(definitions, "revenue", full_refresh=True), job)
    assert third.number == 3
    assert rows(server) == [("2024-03-30", 20), ("2024-03-31", 20)]
    assert server.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'revenue'").fetchall() == [("by_day",)]

    table = definitions.table("revenue")
    assert table is not None
    broken = replace(table, query=table.query.replace("max(at)", "CAST(raise_error('no') AS timestamp)"))
    broken = replace(broken, expanded_query=table.expanded_query.replace("max(at)", "CAST(raise_error('no') AS timestamp)"))
    with pytest.raises(Exception, match="no"):
        run(workspace, replace(request(definitions, "revenue", full_refresh=True), table=broken), job)
    assert rows(server) == [("2024-03-30", 20), ("2024-03-31", 20)]
    assert stages(server) == [], "the job had made the stage, and the worker dropped it"


def test_of_two_refreshes_at_once_one_is_told(
    workspace: Workspace, definitions: Definitions, job: Callable[[RefreshPlan], None], server: psycopg.Connection[Any]
) -> None:
    told: list[str] = []

    def with_a_rival(plan: RefreshPlan) -> None:
        with pytest.raises(ConflictError) as refused:
            run(workspace, request(definitions, "revenue", full_refresh=True, owner="another"), job)
        told.append(str(refused.value))
        job(plan)

    assert isinstance(run(workspace, request(definitions, "revenue", full_refresh=True), with_a_rival), Version)
    assert len(told) == 1
    assert "is being refreshed by a test since" in told[0]
    assert rows(server) == [("2024-03-30", 6), ("2024-03-31", 4)]
    assert stages(server) == []


def test_what_is_not_as_expected_waits_in_its_table_until_somebody_publishes_it(
    workspace: Workspace, definitions: Definitions, job: Callable[[RefreshPlan], None], server: psycopg.Connection[Any]
) -> None:
    asked = request(definitions, "checked")
    with pytest.raises(QuarantinedError, match="is in quarantine") as caught:
        run(workspace, asked, job)
    (stage,) = stages(server)
    assert f'"public"."{stage}"' in str(caught.value)
    publish(workspace, asked.token)
    assert server.execute("SELECT orders FROM checked").fetchall() == [(4,)]
    assert stages(server) == []


PASSWORD = "h1dden-w0rd"


@pytest.mark.large
def test_a_password_is_in_no_file_log_or_command_line(
    workspace: Workspace,
    definitions: Definitions,
    server: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"postgresql://postgres:{PASSWORD}@{server.info.host}:{server.info.port}/{server.info.dbname}"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", url)
    said: list[str] = []
    lines: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            lines.update(command_lines())

    def submit(plan: RefreshPlan) -> None:
        said.extend([plan.to_json(), repr(plan)])
        environment = job_environment(workspace, plan)
        assert list(environment.values()) == [PASSWORD]
        table = definitions.table("revenue")
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            SparkSubmitRunner(table.spark, "local[1]", said.append).run(plan, environment)
        finally:
            done.set()
            watcher.join()

    assert isinstance(run(workspace, request(definitions, "revenue", full_refresh=True), submit), Version)
    assert server.execute("SELECT DISTINCT last::text FROM revenue").fetchall() == [("2024-03-31 00:30:00+00",)]
    assert any("jobs/main.py" in line for line in lines)
    files = {str(path): content for path, content in contents_below(tmp_path)}
    assert any("events" in path for path in files)
    assert [path for path, content in files.items() if PASSWORD.encode() in content] == []
    assert PASSWORD not in "\n".join([*said, *lines, caplog.text])
    kept = server.execute("SELECT value::text FROM _dynamic_table_commits").fetchall()
    assert PASSWORD not in str(kept)


FROM_DELTA = """
defaults: {catalog: pg, database: SHOPDB, format: jdbc, freshness: 1 day}
sources:
  - {name: events, format: delta, path: EVENTS}
dynamic_tables:
  - {name: per_day, partitioned_by: [day], query: "SELECT day, sum(n) AS n, max(at) AS at FROM events GROUP BY day"}
"""


@pytest.mark.large
def test_partitions_of_a_server_are_verified(
    workspace: Workspace, spark: SparkSession, server: psycopg.Connection[Any], tmp_path: Path
) -> None:
    job = job_of(spark, workspace)
    at = datetime(2024, 3, 31, 0, 30, 0, 123456, tzinfo=UTC)
    days = [date(2024, 3, 30), date(2024, 3, 31)]
    events = pa.table({"day": [*days, *days], "n": [1, 2, 3, 4], "at": [at] * 4})
    write_deltalake(tmp_path / "events", events)
    path = tmp_path / "dags" / "tables.yaml"
    path.write_text(FROM_DELTA.replace("SHOPDB", server.info.dbname).replace("EVENTS", str(tmp_path / "events")))
    definitions = load_definitions(path, conventions=Conventions(names_scope({}, workspace.settings.catalogs_file)))
    (table,) = definitions.tables.values()

    def verified() -> dict[str, str]:
        found = verify(workspace, VerifyRequest(table, definitions.sources, RandomSample(None, 1)), job)
        return {one.partition: one.reason or f"{one.verdict} {one.rows} -{one.missing} +{one.extra}" for one in found}

    run(workspace, request(definitions, "per_day", full_refresh=True), job)
    equal = {"day=2024-03-30": "EQUAL 1 -0 +0", "day=2024-03-31": "EQUAL 1 -0 +0"}
    assert verified() == equal
    write_deltalake(tmp_path / "events", events, mode="append")
    run(workspace, request(definitions, "per_day", partitions=PartitionSet.of([{"day": "2024-03-30"}])), job)
    assert verified() == equal, "each for the version of its source"
    server.execute("UPDATE per_day SET n = 7 WHERE day = '2024-03-31'")
    server.execute("INSERT INTO per_day VALUES ('2024-04-01', 1, now()), (NULL, 1, now())")
    assert verified() == {
        "day=2024-03-30": "EQUAL 1 -0 +0",
        "day=2024-03-31": "DRIFT 1 -1 +1",
        "day=2024-04-01": "DRIFT 1 -0 +1",
        "day=__HIVE_DEFAULT_PARTITION__": "its key is null, which no refresh writes",
    }
    assert stages(server) == []
