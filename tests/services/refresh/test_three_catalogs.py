"""A refresh that reads from two catalogs and writes to a third, with real spark-submit; one of them is a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.refresh.change_detection import detect_changes
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.postgres import PostgresServer
from tests.support.pyarrow_job import write_numbers

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

CATALOGS = """
catalogs:
  - name: lake
    type: sql
    is-default: true
    default-database: sales
    connection-params: {url: 'sqlite:///lake.db', warehouse: lake}
  - {name: raw, type: sql, connection-params: {url: 'sqlite:///raw.db', warehouse: raw}}
  - {name: shop, type: jdbc, conn-id: shop_db}
  - {name: gone, type: jdbc, connection-params: {url: 'postgresql://me@127.0.0.1:1/gone'}}
"""
TABLES = """
defaults:
  spark:
    jars: DRIVER
    conf:
      spark.ui.enabled: false
      spark.sql.shuffle.partitions: 1
      spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
sources:
  - {name: shop.shop.`crm.orders`, format: jdbc, options: {partitionColumn: id, numPartitions: 2}}
  - {name: gone.gone.orders, format: jdbc}
dynamic_tables:
  - {name: raw.numbers.chosen, freshness: 1 day, query: SELECT 1 AS x}
  - name: totals
    freshness: 1 day
    query: |
      SELECT sum(o.amount) AS total, count(*) AS orders
      FROM shop.shop.`crm.orders` o JOIN raw.numbers.chosen c ON o.id = c.x
  - {name: counted, freshness: 1 day, query: SELECT count(*) AS x FROM shop.shop.`crm.orders`}
  - {name: lost, freshness: 1 day, query: SELECT id FROM gone.gone.orders}
"""
TOTALS = TableIdentifier("lake", "sales", "totals")
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> str:
    url = postgres.create_database("shop")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA crm; CREATE TABLE crm.orders (id bigint, amount numeric(10,2))")
        connection.execute("INSERT INTO crm.orders SELECT i, i * 10 FROM generate_series(1, 5) i")
    return url


@pytest.fixture
def workspace(tmp_path: Path, shop: str, postgres_driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    (tmp_path / "catalogs.yaml").write_text(CATALOGS)
    (tmp_path / "tables.yaml").write_text(TABLES.replace("DRIVER", str(postgres_driver)))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", shop.replace("postgres@", "postgres:s3cr%40t@"))
    settings = embedded_settings({"AIRFLOW_HOME": str(tmp_path / "airflow")}, tmp_path / "catalogs.yaml")
    with open_workspace(settings) as opened:
        yield opened


@pytest.fixture
def definitions(tmp_path: Path, workspace: Workspace) -> Definitions:
    return load_definitions(tmp_path / "tables.yaml", conventions=Conventions(names_scope({}, workspace.settings.catalogs_file)))


def request(definitions: Definitions, name: str) -> RefreshRequest:
    table = definitions.table(name)
    assert table is not None
    return RefreshRequest(table, definitions.sources, NOON, token=f"{name}-1", owner="a test")


def test_a_table_of_a_server_has_no_versions_so_what_reads_it_is_never_left_out(
    workspace: Workspace, definitions: Definitions
) -> None:
    for number in (1, 2):
        asked = replace(request(definitions, "counted"), token=f"counted-{number}", is_scheduled=True)
        assert isinstance(run(workspace, asked, write_numbers), Version)
    moved = detect_changes(workspace, asked, workspace.look_up(asked.table.identifier), WHOLE_TABLE)
    assert moved.partitions.is_whole
    assert moved.why == "shop.shop.`crm.orders` moved: it has no versions"


@pytest.mark.large
def test_two_are_read_and_a_third_is_written(workspace: Workspace, definitions: Definitions, shop: str) -> None:
    assert isinstance(run(workspace, request(definitions, "chosen"), write_numbers), Version)
    plans: list[str] = []

    def spark(plan: RefreshPlan) -> None:
        plans.append(plan.to_json())
        with psycopg.connect(shop) as writer:  # after the plan was made: of no concern to this refresh
            writer.execute("UPDATE crm.orders SET amount = 0")
        SparkSubmitRunner(definitions.tables[TOTALS].spark, "local[1]").run(plan, job_environment(workspace, plan))

    version = run(workspace, request(definitions, "totals"), spark)
    assert [(int(row["total"]), row["orders"]) for row in sample(workspace, TOTALS, 10)] == [(60, 3)]
    assert sorted(version.sources) == ["raw.numbers.chosen", "shop.shop.`crm.orders`"]
    assert "s3cr" not in plans[0]


def test_a_catalog_that_is_down_fails_only_those_that_need_it(workspace: Workspace, definitions: Definitions) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"Cannot read jdbc:postgresql://127\.0\.0\.1:1/gone of catalog gone"):
        run(workspace, request(definitions, "lost"), write_numbers)
    assert workspace.ledger.list_stages() == []
    assert isinstance(run(workspace, request(definitions, "chosen"), write_numbers), Version)
