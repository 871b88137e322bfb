"""Relationships: the other table is bound to a version and recorded, and is no input of the query."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import ExpectationError, UnsupportedError, UpstreamError
from airflow_dynamic_tables.services.continuous.streams.jobs import stream_plan
from airflow_dynamic_tables.services.lineage import refresh_lineages
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.refresh.upstream import parents_of, why_wait
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables import rollback as forgetting
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.runners.conftest import JobRunner
from tests.support.clock import Clock
from tests.support.metastore import HiveMetastore
from tests.support.postgres import PostgresServer
from tests.support.pyarrow_job import write_days, write_numbers

ORDERS, CUSTOMERS, STAFF = (TableIdentifier("lake", "sales", name) for name in ("orders", "customers", "staff"))
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
YAML = """
defaults: {{catalog: lake, database: sales, versions_to_keep: 1, version_max_age: 1 day}}
sources:
- {{name: raw.orders, format: csv, path: {folder}/orders, schema: x bigint}}
- {{name: raw.countries, format: csv, path: {folder}/countries, schema: code bigint}}
dynamic_tables:
- name: orders
  freshness: 1 day
  query: SELECT o.x FROM raw.orders o {join}
  expectations:
  - {{relationship: [x], to: customers, action: {action}}}
  - {{relationship: [x], to: raw.countries, to_columns: [code], action: warn, name: countries}}
- {{name: customers, freshness: 1 day, query: SELECT 1 AS x}}
- name: staff
  freshness: 1 day
  partitioned_by: [ds]
  query: SELECT '2024-03-01' AS ds, 1 AS n
  expectations:
  - {{relationship: [n], to: staff}}
"""


class Shop:
    """Orders that refer to customers and to a source."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder
        self.jobs: list[RefreshPlan] = []
        self.action, self.join, self.violations, self.tokens = "fail", "", 0, 0
        for name in ("orders", "countries"):
            (folder / name).mkdir()
            file = folder / name / "a.csv"
            file.write_text("1\n")
            os.utime(file, (time.time() - 3_600,) * 2)  # a file that has just changed may change again unnoticed

    @property
    def definitions(self) -> Definitions:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(folder=self.folder, action=self.action, join=self.join))
        return load_definitions(path)

    def request(self, table: TableIdentifier = ORDERS, at: datetime = MARCH) -> RefreshRequest:
        definitions = self.definitions.part_for([self.definitions.tables[table]])
        self.tokens += 1
        token = f"{table.table}-{self.tokens}"
        return RefreshRequest(definitions.tables[table], definitions.sources, at, token, token, is_scheduled=True)

    def refresh(self, table: TableIdentifier = ORDERS, at: datetime = MARCH) -> Version | Skipped:
        return run(self.workspace, self.request(table, at), self._submit)

    def _submit(self, plan: RefreshPlan) -> None:
        self.jobs.append(plan)
        write_numbers(plan, violations={"relationship(x) to customers": self.violations})


@pytest.fixture
def shop(workspace: Workspace, tmp_path: Path) -> Shop:
    return Shop(workspace, tmp_path)


def test_the_other_tables_are_bound_and_recorded_but_no_inputs(shop: Shop, clock: Clock) -> None:
    with pytest.raises(UpstreamError, match=r"lake\.sales\.customers has no version yet; refresh it first"):
        shop.refresh()
    customers = shop.refresh(CUSTOMERS)
    assert isinstance(customers, Version)
    orders = shop.refresh()
    assert isinstance(orders, Version)
    plan = shop.jobs[-1]
    assert [source.identifier for source in plan.sources] == ["lake.raw.orders"]
    bound = {reference.identifier: reference.version for reference in plan.references}
    assert bound.keys() == {"lake.sales.customers", "lake.raw.countries"}
    assert bound["lake.sales.customers"] == customers.snapshot
    refresh = shop.workspace.ledger.get_refresh(orders.token)
    assert refresh is not None
    assert refresh.referenced == bound
    assert [*refresh.sources] == [*orders.sources] == ["lake.raw.orders"]
    (lineage,) = refresh_lineages(shop.workspace, [orders.token])
    assert {name: one.version for name, one in lineage.inputs.items()} == {**refresh.sources, **bound}
    assert lineage.inputs["lake.raw.countries"].names[0].name.endswith("/countries")

    clock.time = MARCH + DAY
    assert isinstance(shop.refresh(CUSTOMERS, MARCH + DAY), Skipped)
    (shop.folder / "countries" / "b.csv").write_text("2\n")
    skipped = shop.refresh(at=MARCH + DAY)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.UNCHANGED


def test_a_row_without_a_row_there_fails_the_refresh(shop: Shop) -> None:
    shop.refresh(CUSTOMERS)
    shop.violations = 2
    with pytest.raises(ExpectationError, match=r"relationship\(x\) to customers: 2 rows violate it"):
        shop.refresh()
    shop.action = "warn"
    made = shop.refresh()
    assert isinstance(made, Version)
    refresh = shop.workspace.ledger.get_refresh(made.token)
    assert [(one.name, one.violations) for one in refresh.expectations] == [
        ("relationship(x) to customers", 2),
        ("countries", 0),
    ]


def test_a_table_that_the_query_reads_too_is_compared_at_the_version_that_it_reads(shop: Shop) -> None:
    shop.refresh(CUSTOMERS)
    shop.join = "JOIN customers c ON o.x = c.x"
    assert isinstance(shop.refresh(), Version)
    plan = shop.jobs[-1]
    assert plan.references[0] is next(source for source in plan.sources if source.identifier == "lake.sales.customers")


@pytest.mark.large
def test_a_version_that_a_running_refresh_refers_to_stays(shop: Shop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "ENOUGH", 1)
    clock.time = datetime.now(UTC)
    first = shop.refresh(CUSTOMERS)
    assert isinstance(first, Version)
    begun = shop.request()
    begin(shop.workspace, begun)
    shop.workspace.ledger.renew_lease(begun.token, datetime.now(UTC) + timedelta(days=10_000))
    clock.time = datetime.now(UTC) + timedelta(days=20)
    for _ in range(3):
        run(shop.workspace, replace(shop.request(CUSTOMERS), is_scheduled=False), write_numbers)
    kept = [version.number for version in shop.workspace.table(CUSTOMERS, "iceberg").versions()]
    assert first.number in kept


@pytest.mark.parametrize(("action", "waits"), [("fail", True), ("warn", False)])
def test_a_refresh_that_may_fail_waits_for_the_other_table(shop: Shop, clock: Clock, action: str, waits: bool) -> None:
    clock.time = MARCH
    shop.action = action
    request, definitions = shop.request(), shop.definitions
    parents = parents_of(request.table, definitions)
    assert [parent.identifier for parent in parents] == [CUSTOMERS]
    assert (why_wait(shop.workspace, request, parents, None, lambda *_: False) is not None) is waits
    shop.refresh(CUSTOMERS)
    assert why_wait(shop.workspace, request, parents, None, lambda *_: False) is None


def test_a_table_that_refers_to_itself_compares_with_its_other_partitions(shop: Shop) -> None:
    jobs: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        jobs.append(plan)
        write_days(plan, {"2024-03-01": [1]})

    request = replace(shop.request(STAFF), is_scheduled=False, partitions=PartitionSet.of([{"ds": "2024-03-01"}]))
    assert isinstance(run(shop.workspace, request, job), Version)
    assert isinstance(run(shop.workspace, replace(request, token="again"), job), Version)
    assert [(plan.references, plan.compared is not None) for plan in jobs] == [((), False), ((), True)]


def test_a_stream_is_refused(shop: Shop) -> None:
    request = shop.request()
    with pytest.raises(UnsupportedError, match=r"so it cannot check 'relationship\(x\) to customers'"):
        stream_plan(shop.workspace, request.table, request.sources)


CATALOGS = """
catalogs:
- {{name: lake, type: sql}}
- {{name: hms, type: hive, connection-params: {{uri: '{uri}', warehouse: 'file://{folder}/hive'}}}}
- {{name: shop, type: jdbc, conn-id: shop_db}}
"""
EVERYWHERE = """
defaults: {{catalog: lake, database: sales}}
sources:
- {{name: raw.files, format: csv, path: {folder}/files, schema: x bigint}}
- {{name: raw.delta, format: delta, path: {folder}/delta}}
- {{name: shop.{database}.customers, format: jdbc}}
dynamic_tables:
- {{name: of_iceberg, freshness: 1 day, query: SELECT 1 AS x}}
- {{name: hms.{database}.of_hive, format: parquet, freshness: 1 day, query: SELECT 1 AS x}}
- name: orders
  freshness: 1 day
  query: SELECT CAST(id AS INT) AS x FROM range(5)
  expectations:
  - {{relationship: [x], to: raw.files, action: warn, name: files}}
  - {{relationship: [x], to: raw.delta, action: warn, name: delta}}
  - {{relationship: [x], to: shop.{database}.customers, to_columns: [id], action: warn, name: server}}
  - {{relationship: [x], to: of_iceberg, action: warn, name: iceberg}}
  - {{relationship: [x], to: hms.{database}.of_hive, action: warn, name: hive}}
"""


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.metastore
@pytest.mark.postgres
@pytest.mark.usefixtures("postgres_driver")
def test_the_other_table_may_have_any_format(
    tmp_path: Path,
    empty_state: Path,
    spark: SparkSession,
    hive_metastore: HiveMetastore,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = f"related_{uuid4().hex[:8]}"
    url = postgres.create_database(database)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE customers (id int); INSERT INTO customers VALUES (1), (2), (NULL)")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", url.replace("postgres@", "postgres:s3cr%40t@"))
    (tmp_path / "catalogs.yaml").write_text(CATALOGS.format(uri=hive_metastore.uri, folder=tmp_path))
    (tmp_path / "tables.yaml").write_text(EVERYWHERE.format(folder=tmp_path, database=database))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text("0\n1\n2\n3\n4\n")
    write_deltalake(tmp_path / "delta", pa.table({"x": [4]}))
    state = shutil.copy(empty_state, tmp_path / "state.db")
    settings = WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", tmp_path / "catalogs.yaml")
    with open_workspace(settings) as workspace:
        workspace.catalog("hms").create_database(database, CatalogDatabase())
        definitions = load_definitions(tmp_path / "tables.yaml")

        def refresh(name: str, submit: Callable[[RefreshPlan], object]) -> Version:
            table = definitions.table(name)
            assert table is not None
            made = run(workspace, RefreshRequest(table, definitions.sources, MARCH, token=name, owner=name), submit)
            assert isinstance(made, Version)
            return made

        refresh("of_iceberg", write_numbers)
        refresh("of_hive", lambda plan: write_numbers(plan, (3,)))
        made = refresh("orders", lambda plan: JobRunner(spark).run(plan, job_environment(workspace, plan)))
        recorded = workspace.ledger.get_refresh(made.token)
        assert recorded is not None
        assert {one.name: one.violations for one in recorded.expectations} == {
            "files": 0,
            "delta": 4,
            "server": 3,
            "iceberg": 2,
            "hive": 4,
        }
        assert len(recorded.referenced) == 5
        workspace.catalog("hms").drop_database(database, cascade=True)
