"""What a refresh tells in the log, by which somebody understands it who has nothing else."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days, write_numbers

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}
- {name: more, freshness: 1 day, query: SELECT x FROM numbers}
- name: days
  freshness: 1 day
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT '2024-02-29' AS ds, 1 AS n
"""


def request_of(tmp_path: Path, name: str, token: str = "t1") -> RefreshRequest:
    (tmp_path / "sales.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "sales.yaml")
    table = definitions.table(f"lake.sales.{name}")
    assert table is not None
    return RefreshRequest(table, definitions.sources, MARCH, token, owner="dag/run/refresh")


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="airflow_dynamic_tables")


def test_a_refresh_tells_why_what_it_reads_and_what_came_of_it(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(workspace, request_of(tmp_path, "numbers"), write_numbers)
    caplog.clear()
    run(workspace, request_of(tmp_path, "more", "t2"), write_numbers)
    plan, source, written, committed = caplog.messages
    assert plan == (
        "Refresh of lake.sales.more for 2024-03-01T00:00:00+00:00: INITIALIZE, "
        "scheduled for 2024-03-01T00:00:00+00:00: the complete table."
    )
    refresh = workspace.ledger.get_refresh("t2")
    assert source == f"Source lake.sales.numbers: version {refresh.sources['lake.sales.numbers']}, parquet, files: 1."
    assert written.startswith(f"Spark by hand wrote rows: 3, files: 1, bytes: {refresh.bytes}")
    assert committed.startswith("Committed version 1 of lake.sales.more, fresh up to 2024-03-01T00:00:00+00:00; begin ")
    assert [step in committed for step in ("begin ", "spark ", "commit ")] == [True] * 3


def test_what_comes_out_empty_is_a_warning(workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = PartitionSet.of([{"ds": "2024-02-28"}, {"ds": "2024-02-29"}])
    request = replace(request_of(tmp_path, "days"), partitions=asked)
    run(workspace, request, partial(write_days, days={"2024-02-29": [1]}))
    run(workspace, request_of(tmp_path, "numbers", "t2"), partial(write_numbers, numbers=()))
    assert our_warnings(caplog) == [
        "The query returned no rows for ds=2024-02-28 of lake.sales.days.",
        "The query returned no rows for lake.sales.numbers.",
    ]


def test_years_of_empty_partitions_do_not_fill_the_log(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = PartitionSet.of({"ds": f"2024-01-{day:02}"} for day in range(1, 31))
    run(workspace, replace(request_of(tmp_path, "days"), partitions=asked), partial(write_days, days={}))
    (warning,) = our_warnings(caplog)
    assert warning.endswith("ds=2024-01-10 and 20 more of lake.sales.days.")


def our_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = (record for record in caplog.records if record.name.startswith("airflow_dynamic_tables."))
    return [record.getMessage() for record in ours if record.levelno == logging.WARNING]
