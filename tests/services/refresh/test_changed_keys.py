"""A change of a dimension refreshes the partitions whose facts have its keys, and the table equals its query nevertheless."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv, orc
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.key_scans import ArrowKeyScan
from airflow_dynamic_tables.services.refresh.live_plans import LivePlan, live_plan
from airflow_dynamic_tables.services.refresh.origins import OriginState, origins
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support import jobs
from tests.support.changing_sources import Columns, DeltaSource, IcebergSource, Row, as_arrow
from tests.support.clock import Clock
from tests.support.daily_facts import MARCH, by_day
from tests.support.iceberg_tables import position_deletes, publish_deletes
from tests.support.pyarrow_job import write_days

pytestmark = pytest.mark.sampled

TABLE = TableIdentifier("lake", "sales", "days")
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {facts}
- {dim}
dynamic_tables:
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  refresh_mode: {mode}
  on_change: {{raw.dim: {on_change}{more}}}
  query: |
    SELECT ds, n FROM (SELECT ds, n, count(*) OVER (PARTITION BY ds) AS c
    FROM ({query}))
"""
"""The window keeps new rows from being merged, which the job of these tests does not do."""

JOIN = "SELECT f.ds, f.n * d.factor AS n FROM raw.facts f JOIN raw.dim d ON f.id = d.id"

FACTS: Columns = {"ds": StringType(), "n": LongType(), "id": IntegerType(), "other": LongType(), "name": StringType()}
DIM: Columns = {
    "id": LongType(),
    "name": StringType(),
    "factor": LongType(),
    "note": StringType(),
    "price": DoubleType(),
    "kind": StringType(),
}


@dataclass
class Shop:
    """A table over facts by day and a dimension, which a job refreshes by what SQLite says that its query returns."""

    workspace: Workspace
    clock: Clock
    folder: Path
    facts: IcebergSource | DeltaSource
    dim: IcebergSource | DeltaSource
    query: str = JOIN
    in_sqlite: str = ""
    """The query in SQLite, if that differs."""
    mode: str = "incremental"
    on_change: str = "affected"
    more: str = ""
    rows_of: dict[str, list[Row]] = field(default_factory=lambda: {"facts": [], "dim": []})
    plans: list[RefreshPlan] = field(default_factory=list)

    def sell(self, *rows: Row) -> None:
        """Append facts."""
        self.facts.append(as_arrow(rows, FACTS))
        self.rows_of["facts"] += rows

    def set(self, rows: Sequence[Row]) -> None:
        """Rewrite the dimension."""
        if self.rows_of["dim"]:
            self.dim.overwrite(as_arrow(rows, DIM))
        else:
            self.dim.append(as_arrow(rows, DIM))
        self.rows_of["dim"] = list(rows)

    def add(self, *rows: Row) -> None:
        """Append to the dimension."""
        self.dim.append(as_arrow(rows, DIM))
        self.rows_of["dim"] += rows

    def remove(self, condition: str, is_removed: Callable[[Row], bool]) -> None:
        """Delete rows of the dimension."""
        if any(map(is_removed, self.rows_of["dim"])):
            self.dim.delete(condition)
        self.rows_of["dim"] = [row for row in self.rows_of["dim"] if not is_removed(row)]

    def forget(self, number: int) -> None:
        """Delete the facts of a number."""
        if any(row[2] == number for row in self.rows_of["facts"]):
            self.facts.delete(f"id = {number}")
        self.rows_of["facts"] = [row for row in self.rows_of["facts"] if row[2] != number]

    def request(self) -> RefreshRequest:
        path = self.folder / "sales.yaml"
        named = {"facts": self.facts.definition, "dim": self.dim.definition, "mode": self.mode, "more": self.more}
        path.write_text(YAML.format(**named, query=self.query, on_change=self.on_change))
        definitions = load_definitions(path)
        self.clock.time += timedelta(days=1)
        token = str(uuid4())
        return RefreshRequest(definitions.tables[TABLE], definitions.sources, self.clock.time, token, token, is_scheduled=True)

    def live(self) -> LivePlan:
        request = self.request()
        definitions = load_definitions(self.folder / "sales.yaml")
        plan = preview(request.table, request.schedule_time, definitions.sources)
        return live_plan(self.workspace, plan, request.table, definitions)

    def refresh(self, **asked: Any) -> Version | Skipped:
        return run(self.workspace, replace(self.request(), **asked), self.submit)

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        write_days(plan, {day: rows for day, rows in self.expected().items() if plan.partitions.covers({"ds": day})})

    def expected(self) -> dict[str, list[int]]:
        with sqlite3.connect(":memory:") as database:
            for name, columns in (("facts", FACTS), ("dim", DIM)):
                database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
                database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", self.rows_of[name])
            query = (self.in_sqlite or self.query).replace("raw.", "")
            return by_day(database.execute(f"SELECT ds, n FROM ({query})"))

    def rows(self) -> dict[str, list[int]]:
        rows = self.workspace.existing_table(TABLE).sample(10_000)
        return by_day((row["ds"], row["n"]) for row in rows)

    def replaced(self) -> list[int] | str:
        """Refresh as the plan foretells; return the days that were replaced, or the reason if none or all were."""
        foretold = self.live()
        outcome = self.refresh()
        assert (foretold.action is RefreshAction.NO_DATA) == isinstance(outcome, Skipped), foretold
        assert self.rows() == self.expected(), (self.query, foretold)
        if isinstance(outcome, Skipped):
            assert outcome.reason.code is ReasonCode.UNCHANGED
            return outcome.reason.text
        assert self.plans[-1].partitions == foretold.replaced
        if foretold.replaced.is_whole:
            return foretold.reason
        return sorted(int(spec["ds"][-2:]) for spec in foretold.replaced if spec["ds"] is not None)

    @property
    def reason(self) -> str:
        return self.workspace.ledger.list_refreshes(TABLE)[0].reason


def sold(day: int, n: int, **others: Any) -> Row:
    return f"2024-02-{day:02}", n, *(others.get(name) for name in list(FACTS)[2:])


def item(number: int | None, factor: int, **others: Any) -> Row:
    return number, others.get("name"), factor, others.get("note"), others.get("price"), others.get("kind", "a")


@pytest.fixture(params=[DeltaSource, IcebergSource])
def shop(request: pytest.FixtureRequest, workspace: Workspace, clock: Clock, tmp_path: Path) -> Shop:
    """Facts of five days: each has its own id, the even ones have id 10, and day 5 has none; and a dimension of all these."""
    clock.time = MARCH
    facts = request.param(workspace, tmp_path, "facts", FACTS, "ds")
    shop = Shop(workspace, clock, tmp_path, facts, request.param(workspace, tmp_path, "dim", DIM, None))
    shop.sell(*(sold(day, day, id=day, other=day + 1, name=f"n{day}") for day in range(1, 5)), sold(5, 5))
    shop.sell(sold(2, 20, id=10), sold(4, 40, id=10))
    shop.set([item(number, number, name=f"n{number}") for number in (1, 2, 3, 4, 6, 10)])
    return shop


LEFT = "SELECT f.ds, f.n * coalesce(d.factor, 7) AS n FROM raw.facts f LEFT JOIN raw.dim d ON d.id = f.id"


def test_only_partitions_with_changed_keys_are_replaced(shop: Shop) -> None:
    shop.query = LEFT
    shop.refresh()
    shop.set([item(3, 30), *(row for row in shop.rows_of["dim"] if row[0] != 3)])
    live = shop.live()
    assert live.reason_code is ReasonCode.SOURCES_CHANGED
    expected = "ds=2024-02-03: lake.raw.dim moved: 1 changed key (id), in 1 of 5 partitions of lake.raw.facts (CHANGED_KEYS)"
    assert expected in live.reason
    assert shop.replaced() == [3]
    shop.remove("id = 10", lambda row: row[0] == 10)
    assert shop.replaced() == [2, 4]
    shop.add(item(1, 5), item(10, 2))
    assert shop.replaced() == [1, 2, 4]
    assert "2 changed keys (id), in 3 of 5 partitions of lake.raw.facts" in shop.reason


def test_a_key_that_is_another_one_counts_with_both(shop: Shop) -> None:
    shop.refresh()
    shop.set([item(6 if row[0] == 1 else row[0], *row[2:3]) for row in shop.rows_of["dim"]])
    assert shop.replaced() == [1], "no fact has the id 6"
    shop.sell(sold(3, 9, id=6))
    assert shop.replaced() == [3]
    shop.set([item(4 if row[0] == 6 else row[0], row[2]) for row in shop.rows_of["dim"]])
    assert shop.replaced() == [3, 4]


def test_changes_without_effect(shop: Shop) -> None:
    shop.refresh()
    shop.set(shop.rows_of["dim"][::-1])
    same = "no row with a key (id) changed in a column that the query uses (SAME_ROWS)"
    assert same in shop.replaced(), "the same rows in other files"
    shop.set([item(row[0], row[2], note="other", name=row[1]) for row in shop.rows_of["dim"]])
    assert same in shop.replaced(), "the query does not use this column"
    shop.add(item(None, 8))
    assert same in shop.replaced(), "null equals nothing"
    shop.add(item(77, 8))
    assert "1 changed key (id), in 0 of 5 partitions of lake.raw.facts (NO_FACTS)" in shop.replaced()
    shop.add(item(3, 8))
    assert shop.replaced() == [3]


def test_a_row_that_is_there_twice_is_another_state(shop: Shop) -> None:
    shop.refresh()
    shop.add(item(2, 2, name="n2"))
    assert shop.replaced() == [2]
    shop.set(list(dict.fromkeys(shop.rows_of["dim"])))
    assert shop.replaced() == [2]


def test_partitions_are_compared_with_the_versions_that_they_were_made_of(shop: Shop) -> None:
    shop.refresh()
    shop.add(item(3, 8))
    shop.sell(sold(1, 1, id=2))
    assert shop.replaced() == [1, 3]
    shop.set([row for row in shop.rows_of["dim"] if row != item(3, 8)])
    assert shop.replaced() == [3], "the other days were made of the rows that it has now"
    shop.refresh(is_scheduled=False, partitions=PartitionSet.of([{"ds": "2024-02-02"}]))
    shop.add(item(2, 2), item(4, 4))
    assert shop.replaced() == [1, 2, 4], "day 1 got a fact of it"


def test_facts_and_dimension_change_at_once(shop: Shop) -> None:
    shop.refresh()
    shop.sell(sold(5, 1, id=3), sold(1, 1, id=4))
    shop.add(item(3, 8))
    assert shop.replaced() == [1, 3, 5]
    shop.forget(3)
    shop.add(item(3, 9))
    assert shop.replaced() == [3, 5]


def test_a_restored_dimension(shop: Shop) -> None:
    shop.refresh()
    before = list(shop.rows_of["dim"])
    shop.add(item(2, 9), item(3, 9))
    assert shop.replaced() == [2, 3]
    shop.dim.restore(1)
    shop.rows_of["dim"] = before
    assert shop.replaced() == [2, 3]


def test_an_expired_version_of_the_dimension(shop: Shop) -> None:
    shop.refresh()
    shop.add(item(3, 8))
    shop.dim.forget()
    assert re.search(r"the partitions with its changed keys are not known: .*\(EXPIRED\)", str(shop.replaced()))
    assert isinstance(shop.refresh(), Skipped)


def test_other_columns_of_the_dimension(shop: Shop) -> None:
    shop.refresh()
    shop.dim.add_column()
    assert "its schema is another one (REPLACED)" in shop.replaced()


@pytest.mark.large
def test_a_missing_file_of_an_earlier_version(shop: Shop) -> None:
    """As after VACUUM."""
    shop.refresh()
    shop.set([item(3, 8), *shop.rows_of["dim"]])
    if isinstance(shop.dim, DeltaSource):
        DeltaTable(shop.dim.folder).vacuum(0, enforce_retention_duration=False, dry_run=False)
    else:
        first = shop.dim.table.snapshots()[0]
        for file in shop.dim.table.scan(snapshot_id=first.snapshot_id).plan_files():
            Path(file.file.file_path.removeprefix("file://")).unlink()
    assert "(UNREADABLE)" in shop.replaced()


def test_too_many_changed_keys(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrowKeyScan.__init__, "__defaults__", (10_000, 2))
    shop.refresh()
    shop.add(item(3, 8), item(4, 8))
    assert shop.replaced() == [3, 4]
    shop.add(item(1, 8), item(2, 8), item(3, 8))
    assert "4 keys changed, more than 2 (TOO_MANY)" in shop.replaced(), "days 1 and 2 are compared with the first version"


@pytest.mark.large
def test_too_many_rows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrowKeyScan.__init__, "__defaults__", (1, 100))
    shop.refresh()
    shop.add(item(3, 8))
    assert "more than 1 rows would be read (TOO_MANY)" in shop.replaced()


def test_a_dimension_whose_changes_replace_all_rows_or_none(shop: Shop) -> None:
    shop.on_change = "refresh"
    shop.refresh()
    shop.add(item(3, 8))
    assert "lake.raw.dim moved" in shop.replaced()
    shop.on_change = "ignore"
    shop.add(item(3, 9))
    assert isinstance(shop.refresh(), Skipped)
    shop.on_change = "affected"
    assert shop.replaced() == [3], "the policy is no part of the definition of the rows"


def test_facts_whose_changes_are_ignored(shop: Shop) -> None:
    """The rows that partitions were made of are not looked up."""
    shop.more = ", raw.facts: ignore"
    shop.refresh()
    shop.add(item(3, 8))
    assert "(QUERY)" in shop.replaced()


def test_a_query_by_whose_keys_no_partition_is_found(shop: Shop) -> None:
    shop.query = "SELECT f.ds, f.n * (SELECT count(*) FROM raw.dim) AS n FROM raw.facts f"
    shop.refresh()
    shop.add(item(3, 8))
    assert "a subquery outside FROM is not followed, at 2:48 of the query (QUERY)" in shop.replaced()


def test_strict_mode(shop: Shop) -> None:
    shop.mode = "incremental_strict"
    shop.refresh()
    shop.add(item(3, 8))
    assert shop.replaced() == [3]
    shop.add(item(3, 9))
    shop.dim.forget()
    with pytest.raises(UnsupportedError, match=r"cannot be refreshed by partition: lake\.raw\.dim moved.*\(EXPIRED\)"):
        shop.refresh()


def test_late_changes_of_a_scheduled_table(shop: Shop) -> None:
    shop.mode = "full\n  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}\n  late: refresh\n  initial: all"
    shop.refresh()
    shop.add(item(3, 8))
    shop.refresh()
    assert shop.plans[-1].partitions == PartitionSet.of([{"ds": "2024-02-03"}])
    assert "1 changed key (id), in 1 of 5 partitions" in shop.reason
    assert shop.rows() == shop.expected()


def test_the_origin_of_rows(shop: Shop) -> None:
    shop.refresh()
    shop.add(item(3, 8))
    request = shop.request()
    definitions = load_definitions(shop.folder / "sales.yaml")

    def state(day: str) -> OriginState:
        return origins(shop.workspace, definitions, request.table, PartitionSet.of([{"ds": day}]))[0].state

    assert state("2024-02-03") is OriginState.CHANGED
    assert state("2024-02-04") is OriginState.CURRENT


def test_rows_that_are_deleted_beside_the_files_of_the_dimension(workspace: Workspace, clock: Clock, tmp_path: Path) -> None:
    clock.time = MARCH
    facts = IcebergSource(workspace, tmp_path, "facts", FACTS, "ds")
    dim = IcebergSource(workspace, tmp_path, "dim", DIM, None)
    shop = Shop(workspace, clock, tmp_path, facts, dim)
    shop.sell(*(sold(day, day, id=day) for day in range(1, 5)))
    shop.add(*(item(number, number) for number in range(1, 5)))
    shop.refresh()
    (file,) = (task.file for task in dim.table.scan().plan_files())
    publish_deletes(dim.table, position_deletes(dim.table, file.partition, [(file.file_path, 1)]))
    del shop.rows_of["dim"][1]
    assert shop.replaced() == [2]
    shop.set(shop.rows_of["dim"])
    assert "SAME_ROWS" in shop.replaced()


def test_facts_in_a_folder_of_files(workspace: Workspace, clock: Clock, tmp_path: Path) -> None:
    clock.time = MARCH
    dim = DeltaSource(workspace, tmp_path, "dim", DIM, "kind")

    class Folder(DeltaSource):
        """Files that Delta wrote, without its log."""

        def append(self, rows: pa.Table) -> None:
            if rows.num_rows:
                write_deltalake(tmp_path / "log", rows, partition_by=["ds"], mode="append")
                shutil.copytree(tmp_path / "log", self.folder, ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)

    facts = Folder(workspace, tmp_path, "facts", FACTS, "ds")
    schema = "n bigint, id int, other bigint, name string"
    facts.definition = f"{{name: raw.facts, format: parquet, path: {facts.folder}, schema: '{schema}', partitioned_by: [ds]}}"
    shop = Shop(workspace, clock, tmp_path, facts, dim)
    shop.sell(*(sold(day, day, id=day) for day in range(1, 5)))
    shop.add(*(item(number, number, kind="b" if number > 2 else "a") for number in range(1, 5)))
    for file in facts.folder.rglob("*.parquet"):
        age(file)
    shop.refresh()
    shop.add(item(3, 8))
    assert shop.replaced() == [3]
    shop.query = "SELECT f.ds, f.n * d.factor AS n FROM raw.facts f JOIN raw.dim d ON f.id = d.id AND d.kind = 'a'"
    shop.refresh()
    shop.add(item(1, 8, kind="a"))
    assert shop.replaced() == [1]
    shop.query = "SELECT f.ds, f.n * d.factor AS n FROM raw.facts f JOIN raw.dim d ON f.ds = d.note"
    shop.refresh()
    shop.add(item(1, 8, note="2024-02-02"), item(1, 8, note="2024-2-3"))
    assert shop.replaced() == [2], "the key is that of the partitions"


@pytest.mark.parametrize("file_format", ["csv", "orc"])
def test_facts_whose_files_are_not_read_here(workspace: Workspace, clock: Clock, tmp_path: Path, file_format: str) -> None:
    clock.time = MARCH
    dim = DeltaSource(workspace, tmp_path, "dim", DIM, None)

    class Folder(DeltaSource):
        """Files of another format than Parquet, without a log."""

        def append(self, rows: pa.Table) -> None:
            for day in set(rows["ds"].to_pylist()):
                file = self.folder / f"ds={day}" / f"{uuid4()}.{file_format}"
                file.parent.mkdir(exist_ok=True, parents=True)
                (csv.write_csv if file_format == "csv" else orc.write_table)(rows.drop_columns("ds"), file)
                age(file)

    facts = Folder(workspace, tmp_path, "facts", FACTS, "ds")
    schema = "n bigint, id int, other bigint, name string"
    facts.definition = (
        f"{{name: raw.facts, format: {file_format}, path: {facts.folder}, schema: '{schema}', partitioned_by: [ds]}}"
    )
    shop = Shop(workspace, clock, tmp_path, facts, dim)
    shop.sell(*(sold(day, day, id=day, other=0, name="") for day in range(1, 4)))
    shop.add(*(item(number, number) for number in range(1, 4)))
    shop.refresh()
    shop.add(item(3, 8))
    why = f"are not known: it has the format {file_format}, whose files are not read here (UNREADABLE)"
    assert why in shop.replaced(), "the plan says so"
    assert why in shop.reason, "the history says so"


def age(file: Path) -> None:
    """Let a file look as old as one of an hour ago."""
    stamp = datetime.now(UTC).timestamp() - 3600
    os.utime(file, (stamp, stamp))


@pytest.mark.spark
@pytest.mark.large
def test_spark_computes_the_partitions_of_changed_keys(
    workspace: Workspace, clock: Clock, tmp_path: Path, spark: SparkSession
) -> None:
    class SparkShop(Shop):
        """Its jobs are those of production."""

        def submit(self, plan: RefreshPlan) -> None:
            self.plans.append(plan)
            jobs.refresh(spark, plan)

    clock.time = MARCH
    facts, dim = (DeltaSource(workspace, tmp_path, "facts", FACTS, "ds"), DeltaSource(workspace, tmp_path, "dim", DIM, None))
    shop = SparkShop(workspace, clock, tmp_path, facts, dim, query=LEFT)
    shop.sell(*(sold(day, day, id=day) for day in range(1, 5)), sold(4, 40, id=1))
    shop.add(*(item(number, number) for number in (1, 2, 3)))
    shop.refresh()
    assert shop.rows() == shop.expected()
    shop.add(item(1, 8), item(4, 8))
    assert shop.replaced() == [1, 4]
    shop.remove("id = 2", lambda row: row[0] == 2)
    shop.sell(sold(3, 30, id=9))
    assert shop.replaced() == [2, 3]
    shop.set([*shop.rows_of["dim"], item(77, 7)])
    assert "NO_FACTS" in shop.replaced()
