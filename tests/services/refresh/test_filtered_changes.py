"""Changes of sources that the conditions of a query filter out need no refresh, and the table equals its query nevertheless."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

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
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH, by_day
from tests.support.pyarrow_job import write_days

TABLE = TableIdentifier("lake", "sales", "days")
COLUMNS = ("ds", "n", "id", "name", "day", "price")
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

Order = tuple[Any, ...]


class IcebergOrders:
    """A table of an Iceberg catalog, written by PyIceberg."""

    def __init__(self, workspace: Workspace, _: Path) -> None:
        self.source = "{name: raw.orders, format: iceberg}"
        catalog = workspace.catalog("lake").stores()[0].tables  # type: ignore[attr-defined]
        catalog.create_namespace_if_not_exists("raw")
        types = (StringType(), LongType(), IntegerType(), StringType(), DateType(), DoubleType())
        fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(zip(COLUMNS, types, strict=True), 1)]
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ds"))
        self.table = catalog.create_table("raw.orders", Schema(*fields), partition_spec=spec)

    def append(self, orders: list[Order]) -> None:
        self.table.refresh().append(as_arrow(orders))

    def delete(self, condition: str) -> None:
        self.table.refresh().delete(condition)

    def forget(self) -> None:
        """Expire all snapshots but the current one."""
        table = self.table.refresh()
        others = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]
        table.maintenance.expire_snapshots().by_ids(others).commit()


class DeltaOrders:
    """A Delta table in a folder, written by delta-rs."""

    def __init__(self, _: Workspace, folder: Path) -> None:
        self.folder = str(folder / "orders")
        self.source = f"{{name: raw.orders, format: delta, path: {self.folder}}}"

    def append(self, orders: list[Order]) -> None:
        write_deltalake(self.folder, as_arrow(orders), partition_by=["ds"], mode="append")

    def delete(self, condition: str) -> None:
        DeltaTable(self.folder).delete(condition)

    def forget(self) -> None:
        """Delete the log before the current version."""
        table = DeltaTable(self.folder)
        table.create_checkpoint()
        for version in range(table.version() + 1):
            (Path(self.folder) / "_delta_log" / f"{version:020}.json").unlink()


def as_arrow(orders: list[Order]) -> pa.Table:
    types = (pa.string(), pa.int64(), pa.int32(), pa.string(), pa.date32(), pa.float64())
    columns = zip(*orders, strict=True)
    return pa.table({name: pa.array(own, kind) for name, own, kind in zip(COLUMNS, columns, types, strict=True)})


@dataclass
class Shop:
    """A table over some of the orders, which a job refreshes by what SQLite says that its query returns."""

    workspace: Workspace
    clock: Clock
    folder: Path
    orders: IcebergOrders | DeltaOrders
    condition: str = "ds >= '2024-02'"
    mode: str = "full"
    rows: list[Order] = field(default_factory=list)
    plans: list[RefreshPlan] = field(default_factory=list)

    def append(self, *orders: Order) -> None:
        self.orders.append([*orders])
        self.rows += orders

    def delete(self, condition: str, is_deleted: Callable[[Order], bool]) -> None:
        if any(map(is_deleted, self.rows)):
            self.orders.delete(condition)
        self.rows = [row for row in self.rows if not is_deleted(row)]

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        path.write_text(YAML.format(source=self.orders.source, condition=self.condition, mode=self.mode))
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


@pytest.fixture(params=[IcebergOrders, DeltaOrders])
def shop(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Shop:
    clock.time = MARCH
    shop = Shop(workspace, clock, tmp_path, request.param(workspace, tmp_path))
    shop.append(order("2024-01-05", 1), order("2024-02-10", 2), order("2024-02-11", 3, id=5, name="a", day=date(2024, 2, 1)))
    return shop


def order(ds: str, n: int, **others: Any) -> Order:
    return ds, n, *(others.get(name) for name in COLUMNS[2:])


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


_CONDITIONS = [
    *("ds > '2024-02-10'", "ds <> '2024-02-11'", "ds IN ('2024-02-10', '2024-02-12')", "id > 4", "id <= 2", "id = 3", "id <> 3"),
    *(
        "id IS NULL",
        "id IS NOT NULL",
        "id NOT IN (1, 2, 3)",
        "id BETWEEN 2 AND 4",
        "name >= 'b'",
        "name < 'aaaaaaaaaaaaaaaaaaab'",
    ),
    *("name IS NULL", "name = ''", "day >= DATE '2024-02-03'", "day < '2024-02-02'", "n > 50", "n BETWEEN 20 AND 40", "id < 2.5"),
]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(24))
def test_any_sequence_of_changes_equals_the_query(shop: Shop, seed: int) -> None:
    chance = Random(seed)
    one, two, three = chance.sample(_CONDITIONS, 3)
    shop.condition = chance.choice(
        [one, f"{one} AND {two}", f"({one} OR {two})", f"NOT ({one} OR {two})", f"({one} AND {two}) OR {three}"]
    )
    shop.mode = chance.choice(["full", "incremental"])
    shop.refresh()
    assert shop.made() == shop.expected()
    for _ in range(10):
        for _ in range(chance.choice([1, 1, 2])):
            change(shop, chance)
        shop.is_left_out()
        assert shop.made() == shop.expected(), (shop.condition, [plan.reason for plan in shop.plans])
    change(shop, chance)
    shop.refresh(is_scheduled=False, full_refresh=True)
    assert shop.made() == shop.expected()


def change(shop: Shop, chance: Random) -> None:
    """Add rows that resemble each other, or remove some."""
    day = f"2024-02-{chance.randrange(9, 14):02}"
    if chance.random() < 0.3:
        number = chance.randrange(1, 6)
        shop.delete(f"ds = '{day}' AND id = {number}", lambda row: row[0] == day and row[2] == number)
        return
    ids: Sequence[int | None] = chance.choice([[None], [1, 2], [3], [4, 5], [None, 3]])
    names: Sequence[str | None] = chance.choice([[None], ["a" * 20], ["a" * 19 + "b", "b"], ["", "c" * 40]])
    days: Sequence[date | None] = chance.choice([[None], [date(2024, 2, 1)], [date(2024, 2, 2), date(2024, 2, 3)]])
    least = chance.randrange(0, 100, 10)
    rows = chance.randrange(1, 4)
    shop.append(
        *(
            order(day, least + chance.randrange(10), id=chance.choice(ids), name=chance.choice(names), day=chance.choice(days))
            for _ in range(rows)
        )
    )
