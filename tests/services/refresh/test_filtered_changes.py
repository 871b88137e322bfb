"""Changes of sources that the conditions of a query filter out need no refresh, and the table equals its query nevertheless."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, StringType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.live_plans import live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changing_sources import Columns, DeltaSource, IcebergSource, Row, as_arrow
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH, by_day
from tests.support.pyarrow_job import write_days

TABLE = TableIdentifier("lake", "sales", "days")
COLUMNS: Columns = {
    "ds": StringType(),
    "n": LongType(),
    "id": IntegerType(),
    "name": StringType(),
    "day": DateType(),
    "price": DoubleType(),
}
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {source}
dynamic_tables:
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  refresh_mode: {mode}
  query: |
    SELECT ds, n FROM (SELECT ds, n, count(*) OVER (PARTITION BY ds) AS c
    FROM raw.orders
    WHERE {condition})
"""
"""The window keeps the new rows from being merged, which the job of these tests does not do."""


@dataclass
class Shop:
    """A table over some of the orders, which a job refreshes by what SQLite says that its query returns."""

    workspace: Workspace
    clock: Clock
    folder: Path
    orders: IcebergSource | DeltaSource
    condition: str = "ds >= '2024-02'"
    mode: str = "full"
    rows: list[Row] = field(default_factory=list)
    plans: list[RefreshPlan] = field(default_factory=list)

    def append(self, *orders: Row) -> None:
        self.orders.append(as_arrow(orders, COLUMNS))
        self.rows += orders

    def delete(self, condition: str, is_deleted: Callable[[Row], bool]) -> None:
        if any(map(is_deleted, self.rows)):
            self.orders.delete(condition)
        self.rows = [row for row in self.rows if not is_deleted(row)]

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(source=self.orders.definition, condition=self.condition, mode=self.mode))
        definitions = load_definitions(path)
        self.clock.time += timedelta(days=1)
        token = str(uuid4())
        return RefreshRequest(definitions.tables[TABLE], definitions.sources, self.clock.time, token, token, is_scheduled=True)

    def refresh(self, **asked: Any) -> Version | Skipped:
        return run(self.workspace, replace(self.request(), **asked), self.submit)

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        write_days(plan, {day: rows for day, rows in self.expected().items() if plan.partitions.covers({"ds": day})})

    def is_left_out(self) -> str:
        """Refresh; return the reason if nothing was done, otherwise an empty text. The plan foretells it."""
        request = self.request()
        definitions = load_definitions(self.folder / "sales.yaml")
        plan = preview(request.table, request.schedule_time, definitions.sources)
        foretold = live_plan(self.workspace, plan, request.table, definitions)
        outcome = run(self.workspace, request, self.submit)
        assert (foretold.action is RefreshAction.NO_DATA) == isinstance(outcome, Skipped), foretold
        if not isinstance(outcome, Skipped):
            return ""
        assert foretold.reason == outcome.reason.text
        assert outcome.reason.code is ReasonCode.UNCHANGED
        return outcome.reason.text

    def expected(self) -> dict[str, list[int]]:
        with sqlite3.connect(":memory:") as database:
            database.execute(f"CREATE TABLE orders ({', '.join(COLUMNS)})")
            rows = [[value.isoformat() if isinstance(value, date) else value for value in row] for row in self.rows]
            database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
            condition = self.condition.replace("DATE '", "'")
            return by_day(database.execute(f"SELECT ds, n FROM orders WHERE {condition}"))

    def made(self) -> dict[str, list[int]]:
        rows = self.workspace.existing_table(TABLE).sample(10_000)
        return by_day((row["ds"], row["n"]) for row in rows)


@pytest.fixture(params=[IcebergSource, DeltaSource])
def shop(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Shop:
    clock.time = MARCH
    shop = Shop(workspace, clock, tmp_path, request.param(workspace, tmp_path, "orders", COLUMNS, "ds"))
    shop.append(order("2024-01-05", 1), order("2024-02-10", 2), order("2024-02-11", 3, id=5, name="a", day=date(2024, 2, 1)))
    return shop


def order(ds: str, n: int, **others: Any) -> Row:
    return ds, n, *(others.get(name) for name in [*COLUMNS][2:])


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_a_change_of_a_partition_that_the_query_does_not_read(shop: Shop, mode: str) -> None:
    shop.mode = mode
    shop.refresh()
    shop.append(order("2024-01-05", 9), order("2023-12-01", 9))
    reason = shop.is_left_out()
    assert "the changes of lake.raw.orders are excluded by the condition ds >= '2024-02' at 3:7 of the query" in reason
    assert shop.made() == shop.expected()
    shop.append(order("2024-02-10", 8))
    assert not shop.is_left_out()
    assert shop.made() == shop.expected()
    shop.append(order("2024-01-05", 7))
    assert shop.is_left_out()


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize(
    ("condition", "unseen", "seen"),
    [
        ("id > 3", {"id": 3}, {"id": 4}),
        ("id IS NOT NULL", {"id": None}, {"id": 4}),
        ("id IS NULL", {"id": 4}, {"id": None}),
        ("NOT (id <= 3)", {"id": None}, {"id": 4}),
        ("name BETWEEN 'b' AND 'c'", {"name": "d" * 50}, {"name": "b" * 50}),
        ("day < DATE '2024-01-01' OR id IN (1, 2)", {"day": date(2024, 1, 1), "id": 3}, {"day": date(2023, 12, 31), "id": 3}),
    ],
)
def test_a_change_that_the_statistics_of_its_files_exclude(
    shop: Shop, mode: str, condition: str, unseen: dict[str, Any], seen: dict[str, Any]
) -> None:
    shop.condition, shop.mode = condition, mode
    shop.refresh()
    shop.append(order("2024-02-10", 9, **unseen))
    assert re.search(r"the changes of lake.raw.orders are excluded by the condition .* at 3:\d+ of the query", shop.is_left_out())
    shop.append(order("2024-02-10", 9, **unseen), order("2024-02-10", 10, **seen))
    assert not shop.is_left_out()
    assert shop.made() == shop.expected()


def test_rows_that_are_removed_count_as_those_that_are_added(shop: Shop) -> None:
    shop.condition = "id >= 5"
    shop.append(order("2024-02-10", 20, id=1))
    shop.append(order("2024-02-10", 21, id=6))
    shop.refresh()
    shop.delete("id = 1", lambda row: row[2] == 1)
    assert shop.is_left_out()
    shop.delete("id = 6", lambda row: row[2] == 6)
    assert not shop.is_left_out()
    assert shop.made() == shop.expected()


def test_a_change_since_a_version_that_is_gone_counts(shop: Shop) -> None:
    shop.condition = "id >= 5"
    shop.refresh()
    shop.append(order("2024-02-10", 20, id=1))
    shop.orders.forget()
    assert not shop.is_left_out()
    assert shop.made() == shop.expected()


def test_the_statistics_of_a_file_say_nothing_about_nan(shop: Shop) -> None:
    """For Spark, NaN is greater than all other numbers."""
    shop.condition = "price > 10"
    shop.refresh()
    shop.append(order("2024-02-10", 20, price=1.0), order("2024-02-10", 21, price=float("nan")))
    assert not shop.is_left_out()


def test_a_query_that_reads_the_source_once_more(shop: Shop) -> None:
    shop.condition = "ds >= '2024-02' AND n < (SELECT count(*) FROM raw.orders)"
    request = shop.request()
    run(shop.workspace, request, lambda plan: write_days(plan, {"2024-02-10": [2]}))
    shop.append(order("2024-01-05", 9))
    assert isinstance(run(shop.workspace, shop.request(), lambda plan: write_days(plan, {"2024-02-10": [2, 3]})), Version)
