"""Scheduled refreshes from and into Hive tables: left out while nothing moves, and whatever others move is seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from hive_metastore.ttypes import FieldSchema, Table

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogPartition, CatalogTable, CatalogView
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.services.refresh.change_detection import Moved, detect_changes
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.entries import registered_or_new
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_days, write_numbers

DATABASE = "still"
EVENTS = ObjectPath(DATABASE, "events")
RECENT = ObjectPath(DATABASE, "recent")
COPY = TableIdentifier("hms", DATABASE, "copy")
TOTAL = TableIdentifier("lake", "sales", "total")
SEEN = TableIdentifier("lake", "sales", "seen")
MERGED = TableIdentifier("lake", "sales", "days")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
AN_HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)
YAML = """
sources:
- {name: hms.still.events, format: hive}
- {name: hms.still.recent, format: view}
dynamic_tables:
- name: hms.still.copy
  freshness: 1 day
  format: FORMAT
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT n, ds FROM hms.still.events
- {name: lake.sales.total, freshness: 1 day, query: SELECT sum(n) AS x FROM hms.still.events}
- {name: lake.sales.seen, freshness: 1 day, query: SELECT x FROM hms.still.recent}
- name: lake.sales.days
  freshness: 1 day
  refresh_mode: incremental
  partitioned_by: [ds]
  query: SELECT n, ds FROM hms.still.events
"""


@dataclass
class Bench:
    """A Hive table that others fill, and tables that are made of it, of both kinds of catalogs."""

    workspace: Workspace
    folder: Path
    file_format: str = "parquet"
    day: int = 0

    @property
    def metastore(self) -> Metastore:
        return next(store.metastore for store in self.workspace.catalog("hms").stores() if isinstance(store, MetastoreStore))

    def file(self, day: int, name: str = "part-0", text: str = "1", changed: datetime = AN_HOUR_AGO) -> Path:
        """Write a file of a day; what is in it, no refresh here looks at."""
        file = self.folder / f"events/ds=2024-03-0{day}/{name}"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        os.utime(file, (changed.timestamp(), changed.timestamp()))
        return file

    def add(self, day: int) -> None:
        self.file(day)
        self.workspace.catalog("hms").create_partition(EVENTS, CatalogPartition({"ds": f"2024-03-0{day}"}))

    def load(self, path: ObjectPath = EVENTS) -> Table:
        table: Table = self.metastore.call("get_table", path.database, path.name)
        return table

    def write_back(self, table: Table) -> None:
        """What ALTER TABLE and ANALYZE of other engines end with."""
        self.metastore.call("alter_table", table.dbName, table.tableName, table)

    def request(self, table: TableIdentifier) -> RefreshRequest:
        path = self.folder / "still.yaml"
        path.write_text(YAML.replace("FORMAT", self.file_format))
        definitions = load_definitions(path)
        self.day += 1
        time = MARCH + timedelta(days=self.day)
        return RefreshRequest(definitions.tables[table], definitions.sources, time, uuid4().hex, "test", is_scheduled=True)

    def refresh(self, table: TableIdentifier) -> Version | Skipped:
        return run(self.workspace, self.request(table), write_numbers)

    def copied(self, *days: int) -> list[str]:
        """What the refresh that replaces these days of the copy does replace: those of which something moved."""
        wanted = PartitionSet.of([{"ds": f"2024-03-0{day}"} for day in days])
        moved = self.look(COPY, wanted)
        if moved.partitions.is_empty:
            return []

        def write(plan: RefreshPlan) -> None:
            write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

        request = replace(self.request(COPY), partitions=moved.partitions, is_scheduled=False)
        assert isinstance(run(self.workspace, request, write), Version)
        return [describe(spec) for spec in moved.partitions]

    def look(self, table: TableIdentifier, wanted: PartitionSet = WHOLE_TABLE) -> Moved:
        request = self.request(table)
        return detect_changes(self.workspace, request, registered_or_new(self.workspace, request.table), wanted)


@pytest.fixture(params=["parquet", "orc"])
def bench(request: pytest.FixtureRequest, hive_workspace: Workspace, tmp_path: Path) -> Iterator[Bench]:
    catalog = hive_workspace.catalog("hms")
    catalog.create_database(DATABASE, CatalogDatabase())
    columns = (Column("n", "bigint"), Column("ds", "string"))
    location = (tmp_path / "events").as_uri()
    catalog.create_table(EVENTS, CatalogTable(columns, format=request.param, location=location, partition_keys=("ds",)))
    made = Bench(hive_workspace, tmp_path, request.param)
    for day in (1, 2):
        made.add(day)
    assert made.copied(1, 2) == ["ds=2024-03-01", "ds=2024-03-02"]
    yield made
    catalog.drop_database(DATABASE, cascade=True)


def test_nothing_moved_nothing_is_done(bench: Bench) -> None:
    assert bench.copied(1, 2) == []
    assert isinstance(bench.refresh(TOTAL), Version)
    skipped = bench.refresh(TOTAL)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.UNCHANGED
    assert "nothing that it reads has moved since version 1: hms.still.events (files:" in skipped.reason.text


def _appears(bench: Bench) -> None:
    bench.file(2, "part-1")


def _rewritten_in_place(bench: Bench) -> None:
    """As many bytes, and the time set back: another engine that keeps times, or a clock that stands."""
    bench.file(2, text="2")


def _partition_dropped(bench: Bench) -> None:
    bench.workspace.catalog("hms").drop_partition(EVENTS, {"ds": "2024-03-02"})


def _partition_moved(bench: Bench) -> None:
    """To a folder with the same files, as ALTER TABLE … SET LOCATION does it."""
    (bench.folder / "elsewhere").mkdir()
    (bench.folder / "events/ds=2024-03-02/part-0").rename(bench.folder / "elsewhere/part-0")
    there = CatalogPartition({"ds": "2024-03-02"}, f"file://{bench.folder}/elsewhere")
    bench.workspace.catalog("hms").alter_partition(EVENTS, there)


def _copy_dropped(bench: Bench) -> None:
    """Another engine drops a partition of the table itself."""
    bench.metastore.call("drop_partition", DATABASE, "copy", ["2024-03-02"], False)


def _copy_written_into(bench: Bench) -> None:
    partition = bench.metastore.call("get_partition", DATABASE, "copy", ["2024-03-02"])
    Path(partition.sd.location.removeprefix("file:"), "theirs.parquet").write_text("more")


OF_ONE_DAY = {
    "a file appears": _appears,
    "a file is rewritten, and its time set back": _rewritten_in_place,
    "a partition is dropped": _partition_dropped,
    "a partition is moved": _partition_moved,
    "a partition of the copy is dropped": _copy_dropped,
    "somebody writes into the copy": _copy_written_into,
}


@pytest.mark.sampled
@pytest.mark.parametrize("move", OF_ONE_DAY.values(), ids=OF_ONE_DAY)
@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_the_partition_that_moved_is_made_anew(bench: Bench, move: Callable[[Bench], None]) -> None:
    move(bench)
    assert bench.copied(1, 2) == ["ds=2024-03-02"]


@pytest.mark.large
@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_only_the_rows_of_added_files_are_computed(bench: Bench) -> None:
    plans: list[RefreshPlan] = []

    def write(plan: RefreshPlan) -> None:
        plans.append(plan)
        (source,) = plan.sources
        rows: dict[str, list[int]] = {}
        for part in source.every_part:
            for file in part.files:
                day = part.values.get("ds") or file.split("ds=")[1][:10]
                rows.setdefault(day, []).append(int(Path(urlsplit(file).path).read_text()))
        write_days(plan, {day: numbers for day, numbers in rows.items() if plan.partitions.covers({"ds": day})})

    def refreshed() -> dict[int, list[int]]:
        assert isinstance(run(bench.workspace, bench.request(MERGED), write), Version)
        found: dict[int, list[int]] = {}
        for row in bench.workspace.existing_table(MERGED).sample(100):
            found.setdefault(int(row["ds"][-1]), []).append(row["n"])
        return {day: sorted(found[day]) for day in sorted(found)}

    later = AN_HOUR_AGO + timedelta(minutes=1)
    assert refreshed() == {1: [1], 2: [1]}
    bench.file(2, "part-1", "5", later)
    bench.add(3)
    assert refreshed() == {1: [1], 2: [1, 5], 3: [1]}
    assert [file.partition("ds=")[2] for file in plans[-1].sources[0].files] == ["2024-03-02/part-1", "2024-03-03/part-0"]
    _partition_moved(bench)
    bench.file(1, "part-1", "7", later)
    assert refreshed() == {1: [1, 7], 2: [1], 3: [1]}
    there = f"file://{bench.folder}/elsewhere"
    bench.workspace.catalog("hms").create_partition(EVENTS, CatalogPartition({"ds": "2024-03-04"}, there))
    file = bench.folder / "elsewhere/part-2"
    file.write_text("9")
    os.utime(file, (later.timestamp(), later.timestamp()))
    assert refreshed() == {1: [1, 7], 2: [1, 9], 3: [1], 4: [1, 9]}, "two partitions share a folder"
    actions = [RefreshAction.INITIALIZE, RefreshAction.MERGE, RefreshAction.PARTITIONS, RefreshAction.MERGE]
    assert [plan.action for plan in plans] == actions


@pytest.mark.parametrize("bench", ["orc"], indirect=True)
def test_a_new_partition_moves_no_other(bench: Bench) -> None:
    bench.add(3)
    assert bench.copied(1, 2, 3) == ["ds=2024-03-03"]


@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_a_column_that_is_added_moves_all(bench: Bench) -> None:
    table = bench.load()
    table.sd.cols.append(FieldSchema("more", "string"))
    bench.write_back(table)
    moved = bench.look(COPY, PartitionSet.of([{"ds": "2024-03-01"}, {"ds": "2024-03-02"}]))
    assert len(list(moved.partitions)) == 2
    assert moved.why == "hms.still.events moved: its schema is another one"


@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_what_is_told_of_a_table_moves_no_row(bench: Bench) -> None:
    """ANALYZE, comments, an owner."""
    for path in (EVENTS, COPY.path):
        table = bench.load(path)
        table.parameters |= {"comment": "of others", "numRows": "7"}
        table.owner = "somebody"
        bench.write_back(table)
    assert bench.copied(1, 2) == []


@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_a_view_between_is_looked_through(bench: Bench) -> None:
    def view(function: str) -> CatalogView:
        query = f"SELECT {function}(n) AS x FROM `hms`.`still`.`events`"
        return CatalogView(query, query, (Column("x", "bigint"),))

    catalog = bench.workspace.catalog("hms")
    catalog.create_table(RECENT, view("sum"))
    assert isinstance(bench.refresh(SEEN), Version)
    assert isinstance(bench.refresh(SEEN), Skipped)
    bench.file(2, "part-1")
    assert isinstance(bench.refresh(SEEN), Version)
    assert isinstance(bench.refresh(SEEN), Skipped)
    catalog.alter_table(RECENT, view("max"))
    assert bench.look(SEEN).why == "its definition changed"


@pytest.mark.parametrize("bench", ["parquet"], indirect=True)
def test_a_metastore_that_is_away_is_no_table_that_stands_still(bench: Bench, tmp_path: Path) -> None:
    assert isinstance(bench.refresh(TOTAL), Version)
    away = tmp_path / "away.yaml"
    file = bench.workspace.settings.catalogs_file
    away.write_text(file.read_text().replace(bench.metastore.uri, "thrift://127.0.0.1:1"))
    with open_workspace(replace(bench.workspace.settings, catalogs_file=away)) as workspace:
        without = replace(bench, workspace=workspace)
        moved = without.look(TOTAL)
        assert moved.partitions.is_whole
        assert moved.why.startswith("cannot tell whether its sources changed: ")
        with pytest.raises(CatalogUnavailableError, match=r"127\.0\.0\.1:1"):
            without.refresh(TOTAL)
    assert isinstance(bench.refresh(TOTAL), Version), "the last one failed"
    assert isinstance(bench.refresh(TOTAL), Skipped)
