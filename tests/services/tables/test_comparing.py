"""What a refresh would refuse is told beforehand where it is certain, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.comparing import misfit
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

VISITS = TableIdentifier("lake", "web", "visits")


def defined(folder: Path, query: str) -> DynamicTable:
    path = folder / "web.yaml"
    path.write_text(f"""
sources: [{{name: lake.raw.log, format: parquet, path: /data/log}}]
dynamic_tables: [{{name: lake.web.visits, freshness: 1 day, partitioned_by: [ds], query: "{query}"}}]
""")
    return load_definitions(path).tables[VISITS]


@pytest.fixture
def table(workspace: Workspace, tmp_path: Path) -> DynamicTable:
    """A table that holds rows of the columns ``ds``, ``n`` and ``extra``."""
    table = defined(tmp_path, "SELECT ds, n, extra FROM lake.raw.log")
    assert misfit(workspace, table) is None, "there is no table yet"
    request = RefreshRequest(
        replace(table, query="SELECT 1", expanded_query="SELECT 1", upstream=()),
        {},
        datetime(2024, 3, 1, tzinfo=UTC),
        "t1",
        "a test",
    )
    run(workspace, request, lambda plan: write_days(plan, {"1": [1]}, more=("extra",)))
    return table


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT ds, n, extra FROM lake.raw.log",
        "SELECT ds, n, extra, more FROM lake.raw.log",
        "SELECT ds, N, count(*) AS Extra FROM lake.raw.log GROUP BY 1, 2",
        "SELECT * FROM lake.raw.log",
        "SELECT ds, * FROM lake.raw.log",
        "SELECT ds, count(*), sum(n) FROM lake.raw.log GROUP BY ds",
        "SELECT ds, cast(n AS STRING) AS n, extra FROM lake.raw.log",
        "SELECT ds, n, extra FROM lake.raw.log UNION ALL SELECT 'x', 1, 2",
        "WITH few AS (SELECT ds FROM lake.raw.log) SELECT ds, 1 AS n, 2 AS extra FROM few",
    ],
)
def test_nothing_is_said_of_what_may_fit(workspace: Workspace, tmp_path: Path, query: str) -> None:
    assert misfit(workspace, defined(tmp_path, query)) is None


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT ds, n FROM lake.raw.log", "no longer returns column 'extra'"),
        ("SELECT ds, extra, n FROM lake.raw.log", "was n bigint, but the query returns extra bigint"),
        ("SELECT ds, m, extra FROM lake.raw.log", "was n bigint, but the query returns m of a type that Spark decides"),
        ("SELECT ds, n FROM lake.raw.log UNION SELECT 'x', 1", "no longer returns column 'extra'"),
    ],
)
def test_columns_that_are_missing_or_elsewhere(workspace: Workspace, tmp_path: Path, query: str, told: str) -> None:
    said = misfit(workspace, defined(tmp_path, query))
    assert said is not None
    assert told in said
    assert "--full-refresh" in said


def test_other_keys_and_another_format(workspace: Workspace, table: DynamicTable) -> None:
    assert "its definition now by (n)" in (misfit(workspace, replace(table, partition_keys=("n",))) or "")
    assert "its definition now says parquet" in (misfit(workspace, replace(table, format="parquet", atomicity="none")) or "")
