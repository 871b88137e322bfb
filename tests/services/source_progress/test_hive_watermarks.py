"""Watermarks of a table that a Hive metastore knows: a partition is whole once it is added, wherever it lies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogPartition, CatalogTable
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

EVENTS = ObjectPath("grown", "events")
YAML = """
sources:
- name: hms.grown.events
  format: hive
  watermark: source
  MORE
  options:
    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00
    partition.time-interval: 1 hour
    streaming-source.partition-order: ORDER
dynamic_tables:
- name: lake.sales.per_hour
  freshness: 1 hour
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: "yyyy-MM-dd'T'HH"}
  query: SELECT concat(pt_day, 'T', pt_hour) AS ds, n FROM hms.grown.events
"""


@pytest.fixture
def workspace(hive_workspace: Workspace, tmp_path: Path) -> Iterator[Workspace]:
    """A ``sql`` catalog to write into, and a metastore with an empty table of others."""
    catalog = hive_workspace.catalog("hms")
    catalog.create_database("grown", CatalogDatabase())
    columns = (Column("n", "bigint"), Column("pt_day", "string"), Column("pt_hour", "string"))
    location = (tmp_path / "events").as_uri()
    keys = ("pt_day", "pt_hour")
    catalog.create_table(EVENTS, CatalogTable(columns, format="parquet", location=location, partition_keys=keys))
    yield hive_workspace
    catalog.drop_database("grown", cascade=True)


def turn(workspace: Workspace, folder: Path, more: str = "comment: of others", order: str = "partition-time") -> list[str] | str:
    """Refresh; the hours that were published with the number of files that were read, or why none was."""
    path = folder / "definitions.yaml"
    path.write_text(YAML.replace("MORE", more).replace("ORDER", order))
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    plans: list[RefreshPlan] = []

    def submit(plan: RefreshPlan) -> None:
        plans.append(plan)
        write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

    request = RefreshRequest(table, definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), uuid4().hex, "test")
    outcome = run(workspace, request, submit)
    if isinstance(outcome, Skipped):
        return str(outcome.reason)
    (source,) = plans[0].sources
    files = [*source.files, *(file for part in source.parts for file in part.files)]
    return [*(str(spec["ds"])[-2:] for spec in plans[0].partitions), f"{len(files)} files"]


def written(folder: Path) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), folder / "part-0.parquet")
    return folder


def added(workspace: Workspace, hour: str, folder: Path) -> None:
    partition = CatalogPartition({"pt_day": "2021-03-19", "pt_hour": hour}, f"file://{folder}")
    workspace.catalog("hms").create_partition(EVENTS, partition)


def test_a_partition_is_whole_once_the_metastore_has_it(workspace: Workspace, tmp_path: Path) -> None:
    usual = tmp_path / "events/pt_day=2021-03-19"
    ten = written(usual / "pt_hour=10")
    assert "no watermark yet" in turn(workspace, tmp_path)
    added(workspace, "10", ten)
    assert turn(workspace, tmp_path) == ["10", "1 files"]
    assert "no new complete partition" in turn(workspace, tmp_path)
    added(workspace, "11", written(tmp_path / "elsewhere/of eleven"))
    added(workspace, "12", written(usual / "pt_hour=12"))
    assert turn(workspace, tmp_path) == ["11", "12", "3 files"]
    pq.write_table(pa.table({"n": pa.array([2], pa.int64())}), ten / "late.parquet")
    assert turn(workspace, tmp_path) == ["10", "4 files"]


def test_a_marker_may_say_it_too(workspace: Workspace, tmp_path: Path) -> None:
    usual = tmp_path / "events/pt_day=2021-03-19"
    for hour in ("10", "11"):
        added(workspace, hour, written(usual / f"pt_hour={hour}"))
    (usual / "pt_hour=10/_SUCCESS").touch()
    by_marker = "complete_when: {file: _SUCCESS}"
    assert turn(workspace, tmp_path, by_marker) == ["10", "1 files"]
    assert "pt_hour=11 of hms.grown.events: it has no _SUCCESS yet" in turn(workspace, tmp_path, by_marker)
    (usual / "pt_hour=11/_SUCCESS").touch()
    assert turn(workspace, tmp_path, by_marker, "create-time") == ["11", "2 files"]
