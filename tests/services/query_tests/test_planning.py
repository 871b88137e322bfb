"""A test plays the refresh that would be planned, with given rows in the places of tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlan, QueryTestPlans
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.query_test_reading import load_query_tests
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.query_tests import plan_test, run_tests
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_numbers

YAML = """
defaults: {catalog: lake, database: sales, timezone: Asia/Tokyo}
sources:
- {name: big, format: view}
- {name: raw.plain, format: parquet, path: /nowhere}
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}
- {name: total, freshness: 1 day, query: "SELECT sum(net(b.x)) AS x FROM big b"}
- name: days
  freshness: 2 days
  schedule: 0 0 * * *
  partitioned_by: [ds]
  spark: {conf: {spark.sql.ansi.enabled: false, spark.executor.memory: 4g}}
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: "SELECT CAST(x AS STRING) AS ds FROM numbers"
- {name: plain, freshness: 1 day, query: SELECT p.x FROM raw.plain p}
tests:
- {table: total, name: the view, given: {big: {rows: [{x: 1}]}}, expect: {rows: []}}
- {table: total, name: what the view reads, given: {lake.sales.numbers: {columns: {x: INT}, rows: []}}, expect: {rows: []}}
- {table: total, name: nothing, expect: {rows: []}}
- {table: total, name: too much, given: {big: {rows: [{x: 1}]}, lake.a.b: {rows: [{x: 1}]}}, expect: {rows: []}}
- {table: days, name: by schedule, schedule_time: 2024-03-02, given: {numbers: {columns: {x: INT}, rows: []}}, expect: {rows: []}}
- {table: plain, name: plain, given: {plain: {rows: [{x: 1, "a`b": "it's"}]}}, expect: {rows: [{x: 1}]}}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as opened:
        yield opened


@pytest.fixture
def lake(workspace: Workspace) -> Workspace:
    catalog = workspace.catalog("lake")
    catalog.create_database("sales", CatalogDatabase())
    query = "SELECT n.x FROM lake.sales.numbers n WHERE n.x > 1"
    catalog.create_table(ObjectPath("sales", "big"), CatalogView(query, query, (Column("x", "int"),)))
    catalog.create_function(ObjectPath("sales", "net"), CatalogFunction("shop:net", "python", {"returns": "bigint"}))
    return workspace


def planned(workspace: Workspace, folder: Path, name: str) -> QueryTestPlan:
    (folder / "sales.yaml").write_text(YAML)
    definitions = load_definitions(folder / "sales.yaml", cache=Cache(None))
    tests, mistakes = load_query_tests({folder / "sales.yaml": YAML}, definitions, (), analyse)
    assert mistakes == ()
    return plan_test(workspace, next(test for test in tests if test.name == name), definitions.sources)


def test_a_view_of_a_catalog_can_be_given(lake: Workspace, tmp_path: Path) -> None:
    plan = planned(lake, tmp_path, "the view")
    assert [given.identifier for given in plan.given] == ["lake.sales.big"]
    assert plan.refresh.query == "SELECT sum(`sales_net_0`(b.x)) AS x FROM `sales_big_0` b"
    assert [function.code for function in plan.refresh.functions] == ["shop:net"]


def test_or_what_it_reads(lake: Workspace, tmp_path: Path) -> None:
    plan = planned(lake, tmp_path, "what the view reads")
    assert [given.identifier for given in plan.given] == ["lake.sales.numbers"]
    assert "FROM `sales_numbers_0` n WHERE n.x > 1" in plan.refresh.query


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "The query reads lake.sales.numbers, whose rows are not given; 'rows: []' gives none."),
        ("too much", "The query does not read lake.a.b; it reads lake.sales.big."),
    ],
)
def test_what_only_the_catalog_knows_is_missing(lake: Workspace, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        planned(lake, tmp_path, name)
    assert str(refused.value) == message


def test_it_is_the_plan_of_the_refresh(lake: Workspace, tmp_path: Path) -> None:
    plan = planned(lake, tmp_path, "by schedule").refresh
    definitions = load_definitions(tmp_path / "sales.yaml", cache=Cache(None))
    numbers, days = (definitions.tables[TableIdentifier("lake", "sales", name)] for name in ("numbers", "days"))
    time = datetime(2024, 3, 1, 15, tzinfo=UTC)  # midnight in Tokyo
    run(lake, RefreshRequest(numbers, definitions.sources, time, token="n1", owner="test"), write_numbers)
    begun = begin(lake, RefreshRequest(days, definitions.sources, time, token="t1", owner="test"))
    real = begun.plan
    for field in ("query", "statement", "partitions", "partition_keys", "timezone", "settings", "functions", "allowed"):
        assert getattr(plan, field) == getattr(real, field), field
    assert plan.schedule_time == real.schedule_time
    assert [source.view for source in plan.sources] == [source.view for source in real.sources]
    assert plan.partitions.to_plain() == [{"ds": "2024-02-29"}, {"ds": "2024-03-01"}]


def test_nothing_is_asked_that_is_not_needed(workspace: Workspace, tmp_path: Path) -> None:
    plan = planned(workspace, tmp_path, "plain")
    assert plan.given[0].query == r"SELECT * FROM VALUES (CAST('1' AS bigint), 'it\'s') AS t(`x`, `a``b`)"
    assert [path.name for path in tmp_path.iterdir()] == ["sales.yaml"]


def test_a_test_that_cannot_be_planned_keeps_no_other_from_running(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "sales.yaml", cache=Cache(None))
    tests, _ = load_query_tests({tmp_path / "sales.yaml": YAML}, definitions, (), analyse)
    sent: list[QueryTestPlans] = []

    def fail(plans: QueryTestPlans) -> QueryTestOutcomes:
        sent.append(plans)
        return QueryTestOutcomes(())

    chosen = [test for test in tests if test.name == "nothing"]
    (result,) = run_tests(workspace, chosen, definitions.sources, fail)
    assert (result.verdict, sent) == ("error", [])
