"""Queries whose new rows are merged into the table by Spark: after each change of the sources the table equals its query."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.exceptions import CommitRejectedError, JobFailedError
from airflow_dynamic_tables.services.refresh.change_detection import skip
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.verifying import PartitionVerdict, RandomSample, VerifyRequest, verify
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.clock import Clock
from tests.support.spark_lake import TABLE, SparkLake

pytestmark = pytest.mark.spark

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAYS = [f"2024-02-{day:02}" for day in range(20, 26)]
COLUMNS = "id bigint, n decimal(12, 2), name string, at bigint, ds string"
YAML = """
defaults: {{catalog: lake, database: sales, format: {format}}}
sources:
- {{name: raw.facts, format: delta, path: {folder}/facts}}
- {{name: raw.other, format: delta, path: {folder}/other}}
- {{name: raw.dim, format: delta, path: {folder}/dim}}
dynamic_tables:
- name: t
  freshness: 1 day
  refresh_mode: incremental
  partitioned_by: [{keys}]
  query: "{query}"
  {settings}
"""

QUERIES = {
    "rows": ("ds", "SELECT ds, id, upper(name) AS name, n * 2 AS n FROM raw.facts WHERE n > -3 OR n IS NULL"),
    "rows without partitions": ("", "SELECT id, name FROM raw.facts"),
    "joined": ("ds", "SELECT f.ds, f.n, d.name FROM raw.facts f LEFT JOIN raw.dim d ON f.id = d.id"),
    "joined before": ("", "SELECT f.n, d.name FROM raw.dim d JOIN raw.facts f ON f.id = d.id"),
    "union": ("", "SELECT ds, n FROM raw.facts UNION ALL SELECT ds, -n AS n FROM raw.other WHERE n > 0"),
    "sums": (
        "ds",
        (
            "SELECT ds, id, count(*) AS c, count(name) AS names, sum(n) AS s, min(n) AS low, max(name) AS best, sum(id) AS ids "
            "FROM raw.facts GROUP BY ds, id"
        ),
    ),
    "sums by name": ("", "SELECT name, sum(n) FILTER (WHERE n > 0) AS s, count(*) AS c FROM raw.facts GROUP BY name"),
    "one group": ("", "SELECT sum(n) AS s, count(*) AS c, max(at) AS at FROM raw.facts WHERE id = 1"),
    "averages": (
        "ds",
        (
            "SELECT ds, avg(n) AS a, sum(n) AS s, count(n) AS c, avg(n) FILTER (WHERE id = 1) AS a1, "
            "sum(n) FILTER (WHERE id = 1) AS s1, count(n) FILTER (WHERE id = 1) AS c1 FROM raw.facts GROUP BY ds"
        ),
    ),
    "by month": ("month", "SELECT substr(ds, 1, 7) AS month, sum(n) AS n FROM raw.facts GROUP BY substr(ds, 1, 7)"),
    "groups of a union": (
        "",
        "SELECT name, count(*) AS c FROM (SELECT name FROM raw.facts UNION ALL SELECT name FROM raw.other) GROUP BY name",
    ),
    "groups of a join": ("", "SELECT d.name, sum(f.n) AS s FROM raw.facts f JOIN raw.dim d ON f.id = d.id GROUP BY d.name"),
    "newest row": (
        "",
        (
            "SELECT id, at, n, name FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at DESC, n, name) r "
            "FROM raw.facts WHERE name IS NOT NULL) WHERE r = 1"
        ),
    ),
    "newest row of a day": (
        "ds",
        "SELECT ds, id, at FROM raw.facts QUALIFY row_number() OVER (PARTITION BY ds, id ORDER BY at DESC) = 1",
    ),
}


@dataclass
class Lake(SparkLake):
    """Sources in Delta tables."""

    format: str = "iceberg"
    settings: str = ""

    def definitions(self) -> str:
        named = {"folder": self.folder, "keys": self.keys, "query": self.query, "format": self.format, "settings": self.settings}
        return YAML.format(**named)

    def read_sources(self, spark: SparkSession) -> None:
        for name in ("facts", "other", "dim"):
            table = DeltaTable(self.folder / name).to_pyarrow_table().to_pylist()
            schema = "id bigint, name string" if name == "dim" else COLUMNS
            names = [part.split()[0] for part in schema.replace("(12, 2)", "").split(", ")]
            spark.createDataFrame([tuple(row[one] for one in names) for row in table], schema).createOrReplaceTempView(name)

    def begin(self) -> None:
        for source in ("facts", "other", "dim"):
            self.append(source, *DAYS[:4])
        self.refresh()

    def append(self, source: str, *days: str, predicate: str | None = None) -> None:
        """Append rows to a source, some for each day, or replace others; the newest in order of ``at`` are not the last ones."""
        chance = self.chance
        rows = []
        for day in days:
            for _ in range(chance.randrange(1, 4)):
                self.writes += 1
                number = chance.choice([None, Decimal(chance.randrange(-500, 500)) / 100])
                at = chance.choice([self.writes, -self.writes])
                rows.append((chance.choice([None, 1, 2, 3]), number, chance.choice([None, "", "a", "b"]), at, day))
        types = (pa.int64(), pa.decimal128(12, 2), pa.string(), pa.int64(), pa.string())
        names = [column.split()[0] for column in COLUMNS.replace(", 2", "").split(", ")]
        columns = {
            name: pa.array(list(values), kind) for name, values, kind in zip(names, zip(*rows, strict=True), types, strict=True)
        }
        if source == "dim":
            columns = {"id": pa.array([chance.randrange(4)], pa.int64()), "name": pa.array(["x"])}
        by = None if source == "dim" else ["ds"]
        if predicate is None:
            write_deltalake(self.folder / source, pa.table(columns), mode="append", partition_by=by)
        else:
            write_deltalake(self.folder / source, pa.table(columns), mode="overwrite", predicate=predicate, partition_by=by)

    def change(self) -> None:
        """Append rows, most of the time; rewrite or delete some, add a row to the dimension, or go back to an earlier version."""
        source = self.chance.choice(["facts", "facts", "facts", "other"])
        table = DeltaTable(self.folder / source)
        match self.chance.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                self.append(source, *self.chance.sample(DAYS, self.chance.randrange(1, 3)))
            case 5:
                day = self.chance.choice(DAYS)
                self.append(source, day, predicate=f"ds = '{day}'")
            case 6:
                table.delete(f"id = {self.chance.randrange(1, 4)}")
            case 7:
                table.optimize.compact()
            case 8:
                self.append("dim", "")
            case 9:
                if table.version() > 1:
                    table.restore(self.chance.randrange(max(0, table.version() - 2), table.version()))

    def happen(self) -> None:
        """Let a job fail, refresh one partition by hand, or let another engine change the table."""
        match self.chance.randrange(3):
            case 0:
                with pytest.raises((JobFailedError, AssertionError)):
                    run(self.workspace, self.request(full_refresh=True, is_scheduled=False), self._fail)
            case 1 if self.keys == "ds":
                asked = PartitionSet.of([{"ds": self.chance.choice(DAYS)}])
                self.refresh(partitions=asked, is_scheduled=False)
            case _:
                self.meddle()

    @staticmethod
    def _fail(_: RefreshPlan) -> None:
        raise JobFailedError("no")

    def meddle(self) -> None:
        """Append the table's first rows to it, as another engine would."""
        if self.format == "delta":
            location = self.workspace.table(TABLE, "delta").folder()
            assert location is not None
            rows = DeltaTable(location).to_pyarrow_table().slice(0, 2)
            write_deltalake(location, rows, mode="append")
            return
        table = self.workspace.catalog("lake").stores()[0].tables.load_table(("sales", "t"))  # type: ignore[attr-defined]
        table.append(table.scan().to_arrow().slice(0, 2))

    def last(self) -> RefreshAction:
        return self.workspace.ledger.list_refreshes(TABLE)[0].action


@pytest.fixture
def workspace(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Workspace]:
    clock.time = MARCH
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    with open_workspace(settings, clock) as workspace:
        yield workspace


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("shape", QUERIES)
def test_the_table_equals_its_query(
    workspace: Workspace, clock: Clock, tmp_path: Path, spark: SparkSession, shape: str, table_format: str, seed: int
) -> None:
    lake = Lake(workspace, clock, tmp_path, spark, *QUERIES[shape], Random(f"{shape}{seed}"), format=table_format)
    lake.begin()
    lake.check()
    lake.append("facts", DAYS[1], DAYS[5])
    lake.refresh()
    assert lake.last() is RefreshAction.MERGE, lake.plans[-1].reason
    lake.check()
    for _ in range(6):
        for _ in range(lake.chance.randrange(1, 3)):
            lake.change()
        if lake.chance.randrange(4) == 0:
            lake.happen()
        lake.refresh()
        lake.check()
    lake.refresh(full_refresh=True, is_scheduled=False)
    lake.append("facts", DAYS[2])
    lake.append("facts", DAYS[5])
    lake.refresh()
    assert lake.last() is RefreshAction.MERGE, lake.plans[-1].reason
    lake.check()
    made = len(lake.plans)
    lake.refresh()
    assert len(lake.plans) == made


Open = Callable[..., Lake]


@pytest.fixture
def opened(workspace: Workspace, clock: Clock, tmp_path: Path, spark: SparkSession) -> Open:
    def begun(shape: str, **others: str) -> Lake:
        query = QUERIES.get(shape, ("", shape))
        lake = Lake(workspace, clock, tmp_path, spark, *query, Random(shape), **others)  # type: ignore[arg-type]
        lake.begin()
        return lake

    return begun


@pytest.mark.sampled
@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_rows_are_not_added_to_a_table_that_changed_meanwhile(opened: Open, table_format: str) -> None:
    lake = opened("rows", format=table_format)
    before = lake.rows()
    lake.append("facts", DAYS[1])

    def submit(plan: RefreshPlan) -> None:
        lake.submit(plan)
        lake.meddle()

    with pytest.raises(CommitRejectedError, match="changed while its new rows were computed"):
        run(lake.workspace, lake.request(), submit)
    assert lake.rows() > before, "only the rows of the other engine were added"
    lake.refresh()
    assert lake.last() is not RefreshAction.MERGE
    lake.check()


@pytest.mark.large
@pytest.mark.parametrize("shape", ["rows", "sums"])
def test_rows_that_come_while_the_job_runs_are_merged_next(opened: Open, shape: str) -> None:
    lake = opened(shape)
    lake.append("facts", DAYS[1])

    def submit(plan: RefreshPlan) -> None:
        lake.append("facts", DAYS[1])
        lake.submit(plan)

    run(lake.workspace, lake.request(), submit)
    assert lake.last() is RefreshAction.MERGE
    lake.refresh()
    assert lake.last() is RefreshAction.MERGE
    lake.check()


def test_after_a_failed_merge_all_rows_are_computed(opened: Open) -> None:
    """Files that were added and compacted since may be gone, and a merge would fail for ever."""
    lake = opened("sums by name")
    lake.append("facts", DAYS[1])
    table = DeltaTable(lake.folder / "facts")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(JobFailedError):
        lake.refresh()
    assert lake.last() is RefreshAction.MERGE
    request = lake.request()
    verify(lake.workspace, VerifyRequest(request.table, request.sources, RandomSample(None, 1)), lake.submit)
    skip(lake.workspace, request, Reason(ReasonCode.SUSPENDED, "suspended"))
    latest = {one.action for one in lake.workspace.ledger.list_refreshes(TABLE, 2)}
    assert latest == {RefreshAction.SKIP, RefreshAction.VERIFY}
    lake.refresh()
    assert lake.last() is RefreshAction.FULL
    lake.check()
    lake.append("facts", DAYS[1])
    lake.refresh()
    assert lake.last() is RefreshAction.MERGE
    lake.check()


@pytest.mark.large
def test_days_that_were_made_at_different_times_are_merged_together(opened: Open) -> None:
    lake = opened("sums")
    for day in DAYS[:3]:
        lake.append("facts", day)
        lake.refresh()
    lake.append("facts", *DAYS)
    lake.refresh()
    assert (lake.last(), len(lake.plans[-1].partitions)) == (RefreshAction.MERGE, len(DAYS))
    lake.check()


@pytest.mark.large
def test_a_partition_that_was_refreshed_by_hand_gets_no_row_twice(opened: Open) -> None:
    """The other partitions lack rows of the source that it has."""
    lake = opened("rows")
    lake.append("facts", *DAYS[:3])
    lake.refresh(partitions=PartitionSet.of([{"ds": DAYS[0]}]), is_scheduled=False)
    lake.append("facts", *DAYS[:3])
    lake.refresh()
    lake.check()


def test_one_read_of_the_new_rows_only(opened: Open) -> None:
    lake = opened("rows")
    lake.append("facts", DAYS[1])
    lake.refresh()
    (source,) = lake.plans[-1].sources
    assert sum(len(part.files) for part in source.parts) + len(source.files) == 1
    merged = lake.workspace.ledger.list_refreshes(TABLE)[0]
    assert merged.reason_code is ReasonCode.SOURCES_CHANGED
    assert merged.reason.endswith("; only the rows added since are computed")


@pytest.mark.large
@pytest.mark.parametrize(
    ("query", "settings"),
    [
        ("SELECT ds, n, id FROM raw.facts", "expectations: [{unique: [ds, n, id], action: warn}]"),
        ("SELECT ds, n, id FROM raw.facts", "expectations: [{relationship: [n], to: t, to_columns: [id], action: warn}]"),
        ("SELECT ds, sum(n) AS n FROM raw.facts GROUP BY ds", "expectations: [{not_null: [n], action: drop}]"),
        ("SELECT ds, sum(CAST(n AS double)) AS n FROM raw.facts GROUP BY ds", ""),
        ("SELECT ds, sum(n) AS n FROM raw.facts GROUP BY ds", 'spark: {conf: {spark.sql.ansi.enabled: "false"}}'),
    ],
)
def test_other_refreshes_compute_all_rows(opened: Open, query: str, settings: str) -> None:
    lake = opened(query, settings=settings)
    lake.append("facts", DAYS[1])
    lake.refresh()
    assert lake.last() is RefreshAction.FULL


@pytest.mark.sampled
def test_new_rows_are_looked_for_in_all_rows_of_another_table(opened: Open) -> None:
    lake = opened("SELECT ds, n, id FROM raw.facts", settings="expectations: [{relationship: [id], to: raw.facts}]")
    lake.append("facts", DAYS[1])
    lake.refresh()
    assert lake.last() is RefreshAction.MERGE
    (source,), (reference,) = lake.plans[-1].sources, lake.plans[-1].references
    assert (source.identifier, source.version) == (reference.identifier, reference.version)
    assert (source.files, source.parts) != (reference.files, reference.parts)
    (result,) = lake.workspace.ledger.list_refreshes(TABLE)[0].expectations
    assert result.violations == 0


@pytest.mark.large
def test_sums_of_floating_point_numbers_are_merged_within_a_tolerance(opened: Open) -> None:
    functions = "avg(n / 3D) AS a, sum(n / 3D) AS s, count(n / 3D) AS c, max(n / 3D) AS m"
    query = f"SELECT ds, {functions} FROM raw.facts GROUP BY ds"
    lake = opened(query, settings="float_tolerance: 1e-9")

    def verdicts() -> set[PartitionVerdict]:
        request = lake.request()
        return {
            one.verdict
            for one in verify(lake.workspace, VerifyRequest(request.table, request.sources, RandomSample(None, 1)), lake.submit)
        }

    for _ in range(3):
        lake.append("facts", *DAYS)
        lake.refresh()
        assert lake.last() is RefreshAction.MERGE
    assert verdicts() == {PartitionVerdict.EQUAL}
    lake.settings = ""
    assert verdicts() == {PartitionVerdict.DRIFT}, "no sum differs in its last bits"
    lake.append("facts", *DAYS)
    lake.refresh()
    assert lake.last() is RefreshAction.FULL
