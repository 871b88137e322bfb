"""Partitions that somebody names in another spelling than the table: the same partition, the same lease."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, parse_partitions
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace

HOURS = TableIdentifier("lake", "sales", "hours")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: hours, freshness: 1 day, partitioned_by: [hh], query: "SELECT 1 AS n, 3 AS hh"}
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: "SELECT '2024-01-31' AS ds"
"""


@pytest.fixture
def definitions_file(tmp_path: Path) -> Path:
    file = tmp_path / "sales.yaml"
    file.write_text(YAML)
    return file


def request_of(file: Path, token: str, partitions: str | None = None) -> RefreshRequest:
    definitions = load_definitions(file)
    asked = parse_partitions(partitions) if partitions is not None else None
    table = definitions.tables[HOURS]
    return RefreshRequest(table, definitions.sources, MARCH, token=token, owner=token, partitions=asked)


def write_hours(plan: RefreshPlan, *hours: int) -> None:
    files = []
    for hour in hours:
        uri = f"{plan.data_location}/_partition_0={hour}/part-0.parquet"
        file = Path(urlsplit(uri).path)
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "hh": pa.array([hour], pa.int32())}), file)
        files.append(StagedFile(uri, file.stat().st_size))
    columns = (Column("n", "int"), Column("hh", "int"))
    touched = tuple({"hh": str(hour)} for hour in hours)
    write_text(plan.result_location, RefreshResult(plan.token, "by hand", len(hours), tuple(files), columns, touched).to_json())


def test_another_spelling_is_the_same_partition(workspace: Workspace, definitions_file: Path) -> None:
    run(workspace, request_of(definitions_file, "t1"), lambda plan: write_hours(plan, 3, 4))
    emptied = run(workspace, request_of(definitions_file, "t2", "hh=03"), lambda plan: write_hours(plan))
    assert isinstance(emptied, Version)
    assert [row["hh"] for row in sample(workspace, HOURS, 10)] == [4], "there are no rows of hour 3 any more"


def test_two_spellings_are_one_lease(workspace: Workspace, definitions_file: Path) -> None:
    run(workspace, request_of(definitions_file, "t1"), lambda plan: write_hours(plan, 3))
    begin(workspace, request_of(definitions_file, "t2", "hh=03"))
    with pytest.raises(ConflictError, match="is being refreshed by t2"):
        begin(workspace, request_of(definitions_file, "t3", "hh=3"))


def test_what_is_no_value_of_the_key_is_refused_before_anything_is_done(workspace: Workspace, definitions_file: Path) -> None:
    run(workspace, request_of(definitions_file, "t1"), lambda plan: write_hours(plan, 3))
    with pytest.raises(ConfigurationError, match="partition 'hh=three': 'three' is no int"):
        begin(workspace, request_of(definitions_file, "t2", "hh=three"))


def test_a_day_that_cannot_be_is_refused_before_spark_starts(workspace: Workspace, definitions_file: Path) -> None:
    definitions = load_definitions(definitions_file)
    days = TableIdentifier("lake", "sales", "days")
    asked = parse_partitions("ds=2024-01-31,ds=1995-13-45")
    request = RefreshRequest(definitions.tables[days], {}, MARCH, token="t1", owner="t1", partitions=asked)
    with pytest.raises(ConfigurationError, match=r"lake\.sales\.days: ds=1995-13-45 is no date.*for example ds=2024-01-31\.$"):
        run(workspace, request, lambda _plan: pytest.fail("Spark was started"))
    assert workspace.ledger.get_stage("t1") is None
