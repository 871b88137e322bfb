"""Queries of many shapes, refreshed incrementally by Spark: after each change of the sources the table equals its query."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.clock import Clock
from tests.support.spark_lake import SparkLake

pytestmark = [pytest.mark.spark, pytest.mark.large]

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
DAYS = [f"2024-02-{day:02}" for day in range(20, 30)]
FACTS = "id bigint, n decimal(12, 2), name string, ds string"
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {{name: raw.facts, format: parquet, path: {folder}/facts, schema: "{facts}", partitioned_by: [ds]}}
- {{name: raw.other, format: parquet, path: {folder}/other, schema: "{facts}", partitioned_by: [ds]}}
- {{name: raw.dim, format: parquet, path: {folder}/dim, schema: "id bigint, n decimal(12, 2), name string"}}
dynamic_tables:
- name: t
  freshness: 1 day
  refresh_mode: incremental
  partitioned_by: [{keys}]
  query: "{query}"
"""

QUERIES = {
    "sums": ("ds", "SELECT ds, sum(n) AS total, count(*) AS c, count(DISTINCT name) AS names FROM raw.facts GROUP BY ds"),
    "merged sums": (
        "",
        "SELECT name, sum(n) AS s, count(n) AS c, avg(n) AS a, max(id) AS best, count(*) AS r FROM raw.facts GROUP BY name",
    ),
    "merged rows": ("ds", "SELECT ds, id, n, upper(name) AS name FROM raw.facts WHERE n > -3 OR n IS NULL"),
    "rows": ("ds", "SELECT DISTINCT name, n, ds FROM raw.facts WHERE n > 0 OR n IS NULL"),
    "two keys": (
        "ds, name",
        "SELECT ds, coalesce(name, 'none') AS name, max(n) AS n FROM raw.facts GROUP BY ds, coalesce(name, 'none')",
    ),
    "union": ("ds", "SELECT ds, id, n FROM raw.facts UNION ALL SELECT ds, id, -n FROM raw.other"),
    "joined days": ("ds", "SELECT f.ds, f.id, o.n FROM raw.facts f LEFT JOIN raw.other o ON f.ds = o.ds AND f.id = o.id"),
    "anti join": ("ds", "SELECT f.ds, f.n FROM raw.facts f LEFT ANTI JOIN raw.other o ON f.ds = o.ds AND f.id = o.id"),
    "dimension": (
        "ds",
        "SELECT f.ds, d.name, sum(f.n) AS n FROM raw.facts f JOIN raw.dim d ON f.id = d.id GROUP BY f.ds, d.name",
    ),
    "newest row": (
        "ds",
        "SELECT ds, id, n FROM (SELECT *, row_number() OVER (PARTITION BY ds, id ORDER BY n, name) r FROM raw.facts) WHERE r = 1",
    ),
    "running total": ("ds", "SELECT ds, id, n, sum(n) OVER (PARTITION BY id ORDER BY ds, n, name) AS total FROM raw.facts"),
    "share of all": ("ds", "SELECT ds, n / (SELECT sum(abs(n)) + 1 FROM raw.facts) AS share FROM raw.facts"),
    "common expression": (
        "ds",
        "WITH one AS (SELECT ds, id, sum(n) AS n FROM raw.facts GROUP BY ds, id) SELECT ds, max(n) AS best FROM one GROUP BY ds",
    ),
    "all groups": ("ds, id", "SELECT ds, id, sum(n) AS n, min(name) AS name FROM raw.facts WHERE id IS NOT NULL GROUP BY ALL"),
    "by month": ("month", "SELECT substr(ds, 1, 7) AS month, sum(n) AS n FROM raw.facts GROUP BY substr(ds, 1, 7)"),
    "last three days": (
        "ds",
        "SELECT o.ds, count(f.n) AS n FROM raw.other o JOIN raw.facts f ON f.ds BETWEEN date_sub(o.ds, 2) AND o.ds GROUP BY o.ds",
    ),
    "except": ("ds", "SELECT ds, id FROM raw.facts EXCEPT SELECT ds, id FROM raw.other"),
    "full join": ("ds", "SELECT coalesce(f.ds, o.ds) AS ds, f.n, o.n AS m FROM raw.facts f FULL JOIN raw.other o ON f.id = o.id"),
}


class Lake(SparkLake):
    """Sources in folders of Parquet files."""

    def definitions(self) -> str:
        return YAML.format(folder=self.folder, facts=FACTS, keys=self.keys, query=self.query)

    def read_sources(self, spark: SparkSession) -> None:
        for name, schema in (("facts", FACTS), ("other", FACTS), ("dim", FACTS.rpartition(",")[0])):
            read = spark.read.schema(schema).option("basePath", str(self.folder / name))
            read.parquet(str(self.folder / name)).createOrReplaceTempView(name)

    def rows_of(self, number: int) -> pa.Table:
        chance = self.chance
        numbers = [chance.choice([None, Decimal(chance.randrange(-500, 500)) / 100]) for _ in range(number)]
        return pa.table(
            {
                "id": pa.array([chance.choice([None, 1, 2, 3]) for _ in range(number)], pa.int64()),
                "n": pa.array(numbers, pa.decimal128(12, 2)),
                "name": pa.array([chance.choice([None, "", "a", "b"]) for _ in range(number)], pa.string()),
            }
        )

    def write(self, folder: str, name: str = "") -> None:
        self.writes += 1
        file = self.folder / folder / f"{name or self.writes}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.rows_of(self.chance.randrange(4)), file)
        stamp = (datetime.now(UTC) - timedelta(hours=1)).timestamp() + self.writes
        os.utime(file, (stamp, stamp))

    def change(self) -> None:
        day = f"{self.chance.choice(['facts', 'facts', 'other'])}/ds={self.chance.choice(DAYS)}"
        match self.chance.randrange(6):
            case 0 | 1 | 2:
                self.write(day)
            case 3:
                self.write(day, name="same")
            case 4:
                shutil.rmtree(self.folder / day, ignore_errors=True)
            case 5:
                self.write("dim", name=self.chance.choice(["same", ""]))


@pytest.fixture
def workspace(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Workspace]:
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    with open_workspace(settings, clock) as workspace:
        yield workspace


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", QUERIES)
def test_the_table_equals_its_query(
    workspace: Workspace, clock: Clock, tmp_path: Path, spark: SparkSession, shape: str, seed: int
) -> None:
    clock.time = MARCH
    lake = Lake(workspace, clock, tmp_path, spark, *QUERIES[shape], Random(f"{shape}{seed}"))
    lake.write("dim")
    for day in DAYS[:5]:
        lake.write(f"facts/ds={day}")
        lake.write(f"other/ds={day}")
    lake.refresh()
    lake.check()
    for _ in range(6):
        for _ in range(lake.chance.randrange(1, 4)):
            lake.change()
        lake.refresh()
        lake.check()
    assert {RefreshAction.PARTITIONS, RefreshAction.MERGE} & {plan.action for plan in lake.plans} or shape in UNMAPPED


def test_only_the_added_files_are_read(workspace: Workspace, clock: Clock, tmp_path: Path, spark: SparkSession) -> None:
    clock.time = MARCH
    lake = Lake(workspace, clock, tmp_path, spark, *QUERIES["merged sums"], Random(3))
    lake.write("dim", name="one")
    lake.write(f"other/ds={DAYS[0]}", name="one")
    for day in DAYS[:3]:
        lake.write(f"facts/ds={day}")
    lake.refresh()
    lake.write(f"facts/ds={DAYS[1]}")
    lake.write(f"facts/ds={DAYS[5]}")
    lake.refresh()
    (source,) = lake.plans[-1].sources
    assert [Path(file).name for file in source.files] == ["6.parquet", "7.parquet"]
    lake.check()
    lake.write(f"facts/ds={DAYS[1]}", name="6")
    lake.refresh()
    assert [plan.action for plan in lake.plans] == [RefreshAction.INITIALIZE, RefreshAction.MERGE, RefreshAction.FULL]
    lake.check()


UNMAPPED = {"running total", "share of all", "full join"}
"""Shapes of queries whose partitions cannot be derived from those of all sources."""
