"""Cascades: a refresh of a table, and then of all that reads it, each once, for the partitions that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.refresh.cascading import CascadeOutcome, CascadeStep, cascade
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock

NOW = datetime(2024, 3, 3, 12, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales, freshness: 1 day, start_date: 2024-03-01}
dynamic_tables:
- name: hours
  partitioned_by: [ds, hh]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd, partition.fields.hh.date-formatter: HH}
  query: SELECT '2024-03-01' AS ds, '01' AS hh, 1 AS n
- name: days
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT ds, sum(n) AS n FROM hours GROUP BY ds
- name: months
  partitioned_by: [month]
  options: {partition.fields.month.date-formatter: yyyy-MM}
  query: SELECT left(ds, 7) AS month, sum(n) AS n FROM hours GROUP BY left(ds, 7)
- {name: total, query: SELECT sum(n) AS n FROM days}
- name: beside
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT d.ds, d.n, m.n AS share FROM days d JOIN months m ON left(d.ds, 7) = m.month
- {name: other, query: SELECT 1 AS n}
"""
HOUR = PartitionSet.of([{"ds": "2024-03-01", "hh": "05"}, {"ds": "2024-03-01", "hh": "06"}])


@dataclass
class Bench:
    """Tables, and what their jobs were given."""

    workspace: Workspace
    folder: Path
    yaml: str = YAML
    plans: list[RefreshPlan] = field(default_factory=list)
    failing: str = ""

    @property
    def definitions(self) -> Definitions:
        (self.folder / "tables.yaml").write_text(self.yaml)
        return load_definitions(self.folder / "tables.yaml")

    def refresh(self, request: RefreshRequest, planned: Callable[[RefreshPlan], None]) -> Version | Skipped:
        def submit(plan: RefreshPlan) -> None:
            planned(plan)
            self.job(plan)

        return run(self.workspace, request, submit)

    def job(self, plan: RefreshPlan) -> None:
        """The job of a query that returns no row."""
        self.plans.append(plan)
        if plan.identifier.endswith(f".{self.failing}"):
            raise JobFailedError("a test")
        columns = tuple(Column(name, "string") for name in (*plan.partition_keys, "n"))
        write_text(plan.result_location, RefreshResult(plan.token, "by hand", 0, (), columns).to_json())

    def cascade(self, name: str = "hours", **asked: Any) -> dict[str, CascadeStep]:
        self.plans.clear()
        defined = self.definitions
        table = defined.tables[table_named(name)]
        request = RefreshRequest(table, defined.sources, NOW, str(uuid4()), "test", **{"catches_up": True, **asked})
        return {step.table.table: step for step in cascade(self.workspace, defined, request, self.refresh)}


def table_named(name: str) -> TableIdentifier:
    return TableIdentifier("lake", "sales", name)


@pytest.fixture
def bench(workspace: Workspace, clock: Clock, tmp_path: Path) -> Bench:
    clock.time = NOW
    made = Bench(workspace, tmp_path)
    assert {step.outcome for step in made.cascade().values()} == {CascadeOutcome.REFRESHED}
    return made


def test_every_table_that_reads_it_is_refreshed_once_after_its_parents(bench: Bench) -> None:
    steps = bench.cascade(partitions=HOUR)
    assert [plan.identifier for plan in bench.plans] == [f"lake.sales.{name}" for name in steps]
    assert sorted(steps) == ["beside", "days", "hours", "months", "total"]
    order = list(steps)
    assert order.index("hours") == 0
    assert order.index("beside") > max(order.index("days"), order.index("months"))
    assert order.index("total") > order.index("days")

    # For the partitions that follow, where the query tells which.
    assert (steps["hours"].partitions, steps["hours"].detail) == (HOUR, "asked for")
    assert steps["days"].partitions == PartitionSet.of([{"ds": "2024-03-01"}])
    assert steps["days"].detail == "the partitions that follow from lake.sales.hours"
    assert (steps["total"].partitions.is_whole, steps["total"].detail) == (True, "it has no partitions")

    # Else as a refresh of its own, and that is said.
    assert steps["months"].partitions == PartitionSet.of([{"month": "2024-03"}]), "its own latest tick"
    assert steps["months"].detail == ("which partitions follow from lake.sales.hours is not known, so its own refresh was made")
    assert steps["beside"].partitions == PartitionSet.of([{"ds": "2024-03-01"}, {"ds": "2024-03-02"}]), "both"
    assert steps["beside"].detail == (
        "which partitions follow from lake.sales.months is not known, so its own refresh was made, and those that follow from "
        "the others"
    )


def test_a_table_that_is_replaced_as_a_whole_has_its_readers_replaced_as_a_whole(bench: Bench) -> None:
    steps = bench.cascade(full_refresh=True)
    assert {name: step.partitions.is_whole for name, step in steps.items()} == dict.fromkeys(steps, True)
    assert steps["days"].detail == "lake.sales.hours was replaced as a whole"


def test_below_a_failure_nothing_is_refreshed_and_that_is_said(bench: Bench) -> None:
    bench.failing = "days"
    steps = bench.cascade(partitions=HOUR)
    assert {name: step.outcome for name, step in steps.items()} == {
        "hours": CascadeOutcome.REFRESHED,
        "days": CascadeOutcome.FAILED,
        "months": CascadeOutcome.REFRESHED,
        "total": CascadeOutcome.NOT_BEGUN,
        "beside": CascadeOutcome.NOT_BEGUN,
    }
    assert steps["days"].detail == "a test"
    assert steps["beside"].detail == "lake.sales.days was not refreshed"
    bench.failing = "hours"
    assert {step.outcome for step in list(bench.cascade(partitions=HOUR).values())[1:]} == {CascadeOutcome.NOT_BEGUN}


def test_below_a_suspended_table_nothing_is_refreshed(bench: Bench) -> None:
    suspend(bench.workspace, table_named("days"), "a test")
    steps = bench.cascade(partitions=HOUR)
    assert (steps["days"].outcome, steps["total"].outcome) == (CascadeOutcome.SUSPENDED, CascadeOutcome.NOT_BEGUN)
    assert bench.cascade(partitions=HOUR, force=True)["total"].outcome is CascadeOutcome.REFRESHED


def test_a_table_without_a_version_is_begun_and_not_only_for_what_follows(
    workspace: Workspace, clock: Clock, tmp_path: Path
) -> None:
    clock.time = NOW
    steps = Bench(workspace, tmp_path).cascade(partitions=HOUR)
    assert steps["days"].partitions == PartitionSet.of([{"ds": "2024-03-01"}, {"ds": "2024-03-02"}]), "from start_date on"
    assert steps["days"].detail == "it had no version yet, so its own refresh was made"


def test_partitions_of_several_commits_all_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed ticks that are too many for one commit."""
    monkeypatch.setattr("airflow_dynamic_tables.services.refresh.catching_up.MOST_PARTITIONS", 24)
    clock = bench.workspace.clock
    assert isinstance(clock, Clock)
    clock.time = later = datetime(2024, 3, 6, 12, tzinfo=UTC)
    defined = bench.definitions
    request = RefreshRequest(
        defined.tables[table_named("hours")], {}, later.replace(hour=0), str(uuid4()), "test", catches_up=True
    )
    steps = {step.table.table: step for step in cascade(bench.workspace, defined, request, bench.refresh)}
    assert len(steps["hours"].partitions) == 72
    assert steps["days"].partitions == PartitionSet.of({"ds": f"2024-03-0{day}"} for day in (3, 4, 5))


def test_a_table_that_reads_it_through_a_view_of_a_catalog_is_refreshed_too(bench: Bench) -> None:
    view = CatalogView("SELECT ds, n FROM lake.sales.days", "SELECT ds, n FROM lake.sales.days")
    bench.workspace.catalog("lake").create_table(table_named("v").path, view)
    bench.yaml += """- name: viewed
  partitioned_by: [ds]
  query: SELECT ds, n FROM v
sources: [{name: v, format: view}]
"""
    defined = bench.definitions
    assert table_named("days") not in defined.tables[table_named("viewed")].upstream
    assert bench.cascade(partitions=HOUR)["viewed"].detail == "it had no version yet, so its own refresh was made"
    assert bench.cascade(partitions=HOUR)["viewed"].detail == "the partitions that follow from lake.sales.days"


def test_names_that_have_a_case_tell_no_partitions(bench: Bench) -> None:
    bench.yaml = YAML.replace(
        "  query: SELECT ds, sum(n)", "  spark: {conf: {spark.sql.caseSensitive: 'true'}}\n  query: SELECT ds, sum(n)"
    )
    assert "is not known" in bench.cascade(partitions=HOUR)["days"].detail
