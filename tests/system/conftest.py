"""Airflow homes that all tests share: starting one takes longer than most tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cluster_stand_in
from tests.support.airflow import Airflow, Stack, embedded, running
from tests.support.postgres import PostgresServer

STATE_PASSWORD = "S3CR3T-of-the-state"
"""In the connection of the stack; nothing that Airflow keeps may hold it."""

SOURCES = """
  - name: orders
    format: json
    path: FOLDER/orders
    partitioned_by: [ds]
    schema: "id bigint, country string, amount double, ds string"
  - name: numbers
    format: json
    path: FOLDER/numbers
    schema: "x bigint, nap bigint"
"""

STACK_TABLES = f"""
defaults: {{catalog: lake, database: sales, retries: 0, spark: SPARK}}
sources: {SOURCES}
dynamic_tables:
  - &daily
    name: daily
    freshness: 1 day
    partitioned_by: [ds]
    initial: latest
    options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
    query: SELECT ds, country, sum(amount) AS revenue FROM orders GROUP BY ds, country
  - <<: *daily
    name: weekly
    freshness: 1 week
  - name: totals
    freshness: 1 day
    query: SELECT country, sum(revenue) AS revenue FROM daily GROUP BY country
  - name: never
    freshness: 1 day
    query: SELECT 1 AS x
  - name: late
    freshness: 1 minute
    refresh_mode: full
    schedule: 0 0 1 1 *
    query: SELECT x FROM never
  - name: fused
    freshness: 1 day
    spark: {{conn_id: spark_stand_in}}
    query: SELECT x FROM numbers
    expectations: [{{row_count: {{min: 2}}}}]
  - name: hopeless
    freshness: 1 day
    retries: 1
    retry_delay: 5 seconds
    spark: {{conn_id: spark_stand_in}}
    query: SELECT id FROM orders
  - name: orphan
    freshness: 1 day
    query: SELECT id FROM hopeless
  - name: endless
    freshness: 1 day
    query: SELECT id, reflect('java.lang.Thread', 'sleep', 3600000L) AS slept FROM orders
"""


def write_orders(folder: Path) -> None:
    """Two orders a day of January and early February 2024, 10 and 1 on the first day, 20 and 2 on the second …"""
    for day in range(1, 36):
        ds = f"2024-01-{day:02d}" if day < 32 else f"2024-02-{day - 31:02d}"
        orders = [{"id": day, "country": "DE", "amount": day * 10}, {"id": -day, "country": "FR", "amount": day}]
        (folder / f"ds={ds}").mkdir(parents=True)
        (folder / f"ds={ds}" / "orders.json").write_text("\n".join(map(json.dumps, orders)))


@pytest.fixture(scope="session")
def embedded_airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    return embedded(tmp_path_factory.mktemp("embedded") / "home")


@pytest.fixture(scope="package")  # not longer: it computes also when nobody asks for anything
def stack(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Stack]:
    """API server, scheduler, DAG processor and triggerer on PostgreSQL, with tables that read ``orders``."""
    folder = tmp_path_factory.mktemp("stack")
    write_orders(folder / "orders")
    (folder / "numbers").mkdir()
    (folder / "numbers" / "numbers.json").write_text('{"x": 1, "nap": 0}')
    state_url = postgres.create_database("state")
    airflow = Airflow(folder / "home", state_url)
    airflow.define("sales.yaml", STACK_TABLES.replace("FOLDER", str(folder)))
    airflow.define("broken.yaml", "dynamic_tables:\n  - name: broken\n    freshnes: 1 day\n    query: SELECT 1 AS x\n")
    host, port = state_url.removeprefix("postgresql://postgres@").removesuffix("/state").split(":")
    login = {"login": "postgres", "password": STATE_PASSWORD}  # which the server takes unasked
    connection = {"conn_type": "dynamic_tables", "host": host, "port": int(port), "schema": "state", **login}
    extra = {"warehouse": airflow.warehouse.as_uri()}
    airflow.environ["AIRFLOW_CONN_DYNAMIC_TABLES_DEFAULT"] = json.dumps({**connection, "extra": extra})
    # A second Spark connection, for tests of what happens around the job.
    cluster_stand_in.install(folder / "bin")
    airflow.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{airflow.environ['PATH']}"
    stand_in = {"conn_type": "spark", "host": "local", "extra": {"spark-binary": "spark3-submit"}}
    airflow.environ["AIRFLOW_CONN_SPARK_STAND_IN"] = json.dumps(stand_in)
    # Only of DAGs that enable it.
    airflow.lineage_events.mkdir()
    airflow.environ["AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE"] = "True"
    airflow.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "file"
    airflow.environ["OPENLINEAGE__TRANSPORT__LOG_FILE_PATH"] = str(airflow.lineage_events / "event")
    with running(airflow, postgres.create_database("airflow")) as started:
        yield started
