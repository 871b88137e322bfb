"""Delta, PostgreSQL and Iceberg in a REST catalog under a running Airflow; each reads the one before, and none tells a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.clients.connections import environment_connections
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import list_tables, sample
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.airflow import Stack, until
from tests.support.iceberg_rest.server import CREDENTIAL, IcebergRest
from tests.support.postgres import DRIVER, PostgresServer
from tests.system.test_airflow_secrets import files_with, tables_with

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1200)]

PASSWORD = "S3CR3T-of-the-shop"
TOKEN = "t0k3n-of-the-lakehouse"

CATALOGS = """
catalogs:
  - {name: lake, type: sql, is-default: true}
  - {name: pg, type: jdbc, conn-id: formats_shop, connection-params: {warehouse: FOLDER/stages}}
  - {name: house, type: iceberg, conn-id: formats_house}
"""
DEFINITIONS = """
defaults:
  catalog: lake
  database: formats
  freshness: 1 day
  retries: 0
  spark: {conn_id: formats_spark, conf: {spark.sql.shuffle.partitions: 1}}
  options: {jdbc.writers: 1}
sources:
  - {name: orders, format: json, path: FOLDER/orders, partitioned_by: [ds], schema: "id bigint, amount double, ds string"}
dynamic_tables:
  - name: bronze
    format: delta
    partitioned_by: [ds]
    initial: latest
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    query: SELECT id, amount, ds FROM orders
  - name: pg.SHOP.silver
    format: jdbc
    partitioned_by: [day]
    initial: latest
    options: {partition.fields.day.date-formatter: yyyy-MM-dd}
    query: SELECT CAST(ds AS DATE) AS day, id, amount FROM lake.formats.bronze
    expectations: [{name: affordable, predicate: amount < 1000}]
  - name: house.formats.gold
    partitioned_by: [day(ts), "bucket(8, id)"]
    query: SELECT CAST(day AS TIMESTAMP) AS ts, id, amount FROM pg.SHOP.silver
"""
LOADING = """
load_dynamic_tables(globals(), "FOLDER/definitions", maintenance=False)
"""


class Formats(NamedTuple):
    stack: Stack
    orders: Path
    settings: WorkspaceSettings
    tables: tuple[TableIdentifier, ...]

    def order(self, day: str, amount: float) -> None:
        folder = self.orders / f"ds={day}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "order.json").write_text(json.dumps({"id": 1, "amount": amount}))

    def workspace(self) -> Workspace:
        return open_workspace(self.settings)

    def amounts(self) -> list[list[float]]:
        with self.workspace() as workspace:
            return [sorted(row["amount"] for row in sample(workspace, table, 100)) for table in self.tables]

    def refresh(self, number: int, run_id: str | None = None, ends: str = "success", **conf: Any) -> str:
        """Refresh one of the tables in Airflow, until that has ended as it should.

        :param run_id: a run that is tried again; without it, one is triggered.
        :return: its run.
        """
        dag_id = self.tables[number].workflow_id
        if run_id is None:
            run_id = self.stack.trigger(dag_id, conf=conf)
        else:
            before = self.stack.task(dag_id, run_id)["try_number"]
            self.stack.clear(dag_id, run_id)
            until("next try", lambda: self.stack.task(dag_id, run_id)["try_number"] > before)
        self.stack.until_state(dag_id, run_id, ends)
        return run_id


@pytest.fixture(scope="module")
def formats(stack: Stack, postgres: PostgresServer, iceberg_rest: IcebergRest) -> Iterator[Formats]:
    airflow = stack.airflow
    folder = airflow.home / "formats"
    (folder / "definitions").mkdir(parents=True)
    database = f"shop_{uuid4().hex[:8]}"
    postgres.create_database(database)
    iceberg_rest.empty()
    iceberg_rest.token = TOKEN
    client, _, secret = CREDENTIAL.partition(":")
    login = {"login": postgres.create_user(PASSWORD), "password": PASSWORD}
    connections: dict[str, dict[str, Any]] = {
        "formats_shop": {"conn_type": "postgres", "host": "127.0.0.1", "port": postgres.port, "schema": database, **login},
        "formats_house": {"conn_type": "iceberg", "host": iceberg_rest.uri, "login": client, "password": secret},
        "formats_spark": {"conn_type": "spark_connect", "host": "local", "extra": json.dumps({"jars": str(DRIVER)})},
    }
    for conn_id, connection in connections.items():
        stack.api.post("/connections", json={"connection_id": conn_id, **connection}).raise_for_status()
    environ = {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(connection) for conn_id, connection in connections.items()}
    catalogs = folder / "catalogs.yaml"
    catalogs.write_text(CATALOGS.replace("FOLDER", str(folder)))
    text = DEFINITIONS.replace("FOLDER", str(folder)).replace("SHOP", database)
    (folder / "definitions" / "formats.yaml").write_text(text)
    airflow.append(LOADING.replace("FOLDER", str(folder)))
    settings = WorkspaceSettings(airflow.state_url, airflow.warehouse.as_uri(), catalogs, environment_connections(environ))
    names = ("lake.formats.bronze", f"pg.{database}.silver", "house.formats.gold")
    yield Formats(stack, folder / "orders", settings, tuple(map(TableIdentifier.parse, names)))
    for name in names:
        stack.pause(TableIdentifier.parse(name).workflow_id)
    airflow.check("dynamic-tables", "spark", "stop")
    iceberg_rest.empty()


@pytest.fixture(scope="module")
def scheduled(formats: Formats) -> list[str]:
    stack = formats.stack
    today = datetime.now(UTC).date()
    for days in (0, 1):
        formats.order(f"{today - timedelta(days):%Y-%m-%d}", 10)
    dags = [table.workflow_id for table in formats.tables]
    until("DAGs", lambda: all(stack.api.get(f"/dags/{dag_id}").is_success for dag_id in dags))
    for dag_id in reversed(dags):
        stack.unpause(dag_id)
    runs = [stack.first_run(dag_id) for dag_id in dags]
    for dag_id, run_id in zip(dags, runs, strict=True):
        stack.until_state(dag_id, run_id, "success")
    return runs


@pytest.mark.large
def test_a_tick_goes_through_all_formats(formats: Formats, scheduled: list[str]) -> None:
    assert formats.amounts() == [[10], [10], [10]]
    bronze, silver, gold = formats.tables
    for table, run_id in zip(formats.tables, scheduled, strict=True):
        (event,) = formats.stack.get("/assets/events", source_dag_id=table.workflow_id, source_run_id=run_id)["asset_events"]
        assert (event["extra"]["version"], event["extra"]["rows"]) == (1, 1)
    with formats.workspace() as workspace:
        version = workspace.existing_table(silver).current()
        assert version is not None
        assert list(version.sources) == [str(bronze)]
        (day,) = workspace.catalog("pg").list_partitions(silver.path)
        (hidden,) = workspace.catalog("house").list_partitions(gold.path)
        assert hidden["day(ts)"] == day["day"] == f"{datetime.now(UTC) - timedelta(1):%Y-%m-%d}"
        assert 0 <= int(hidden["bucket(8, id)"]) < 8
        listed = list_tables(workspace, {})
        assert {one.identifier: one.version for one in listed.tables}.items() >= {
            str(table): 1 for table in formats.tables
        }.items()
        assert listed.problems == {}
        with pytest.raises(UnsupportedError, match=r"Version 1 cannot be restored: this format keeps no earlier versions\."):
            rollback(workspace, RollbackRequest(silver, 1, "back", "a test"))
        swept = sweep(workspace)
        assert not set(swept.failed) & {str(table) for table in formats.tables}


@pytest.mark.usefixtures("scheduled")
@pytest.mark.large
def test_airflow_keeps_no_secret_of_a_catalog(formats: Formats) -> None:
    airflow = formats.stack.airflow
    shop = formats.settings.connections("formats_shop")
    databases = (
        airflow.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", ""),
        airflow.state_url,
        shop.url("postgresql"),
    )
    assert all(tables_with(url, "silver") for url in databases), "or the search is blind"
    for secret in (PASSWORD, CREDENTIAL.partition(":")[2], TOKEN):
        assert [tables_with(url, secret) for url in databases] == [set()] * len(databases)
        assert files_with(airflow.home, secret) == []


@pytest.mark.long
@pytest.mark.usefixtures("scheduled")
def test_a_failure_in_the_middle_leaves_the_last_version_and_is_made_up_for(formats: Formats) -> None:
    before = formats.amounts()
    formats.order("2024-01-05", 5000)
    first = formats.refresh(0, partition="ds=2024-01-05")
    second = formats.refresh(1, ends="failed", partition="day=2024-01-05")
    formats.refresh(2)
    after = formats.amounts()
    assert after == [sorted([*before[0], 5000]), before[1], before[2]]
    with formats.workspace() as workspace:
        (failed, *_) = workspace.ledger.list_refreshes(formats.tables[1])
        assert failed.state is RefreshState.FAILED
        assert "affordable: 1 rows violate it" in (failed.error or "")
        assert workspace.ledger.list_stages(formats.tables[1]) == []
    with psycopg.connect(formats.settings.connections("formats_shop").url("postgresql")) as connection:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'silver%'"
        assert connection.execute(query).fetchone() == (1,), "no stage is left"

    formats.order("2024-01-05", 50)
    formats.refresh(0, first)
    formats.refresh(1, second)
    formats.refresh(2)
    assert formats.amounts() == [sorted([*rows, 50]) for rows in before]


@pytest.mark.long
@pytest.mark.usefixtures("scheduled")
def test_days_are_backfilled_from_the_command_line(formats: Formats) -> None:
    for day in (1, 2):
        formats.order(f"2024-01-{day:02d}", day)
    dates = ("--from-date", "2024-01-02", "--to-date", "2024-01-03", "--max-active-runs", "1")
    for table in formats.tables[:2]:
        dag_id = table.workflow_id
        formats.stack.airflow.check("backfill", "create", "--dag-id", dag_id, *dates)
        runs = until("runs", lambda dag_id=dag_id: formats.stack.runs(dag_id, run_type="backfill"))  # type: ignore[misc]
        for run in runs:
            formats.stack.until_state(dag_id, run["dag_run_id"], "success")
    formats.refresh(2)
    assert all({1, 2} <= set(amounts) for amounts in formats.amounts())
