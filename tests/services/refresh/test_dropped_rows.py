"""Rows that expectations drop, kept by Spark in a real table; ``tests/contracts/refreshing`` has all formats."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.clock import Clock
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

ORDERS = TableIdentifier("lake", "sales", "orders")
DROPPED = TableIdentifier("lake", "sales", "orders__dropped")
YAML = """
defaults: {{catalog: lake, database: sales}}
sources:
- {{name: raw.orders, format: csv, path: {folder}/orders, schema: "id bigint, country string"}}
dynamic_tables:
- name: orders
  freshness: 1 day
  refresh_mode: incremental
  query: {query}
  keep_dropped: 3 days
  expectations:
  - {{not_null: [id], action: drop, name: known}}
  - {{accepted_values: {{country: [DE, FR]}}, action: drop, name: country}}
"""


def test_new_rows_are_kept_once_and_columns_may_change(
    clock: Clock, tmp_path: Path, empty_state: Path, spark: SparkSession
) -> None:
    plans: list[RefreshPlan] = []
    settings = WorkspaceSettings(f"sqlite:///{shutil.copy(empty_state, tmp_path)}", f"file://{tmp_path}/warehouse")
    (tmp_path / "orders").mkdir()
    with open_workspace(settings, clock) as workspace:

        def submit(plan: RefreshPlan) -> None:
            plans.append(plan)
            refresh(spark, plan)

        def refreshed(name: str, text: str, query: str = "SELECT id, country FROM raw.orders", **asked: Any) -> str:
            file = tmp_path / "orders" / f"{name}.csv"
            file.write_text(text)
            hour_ago = time.time() - 3600
            os.utime(file, (hour_ago, hour_ago))  # a file that has just been written may still change
            (tmp_path / "sales.yaml").write_text(YAML.format(folder=tmp_path, query=query))
            definitions = load_definitions(tmp_path / "sales.yaml")
            token = str(uuid4())
            request = RefreshRequest(definitions.tables[ORDERS], definitions.sources, clock(), token, token, **asked)
            assert isinstance(run(workspace, request, submit), Version)
            return token

        def rows(table: TableIdentifier) -> list[dict[str, Any]]:
            return sorted(workspace.table(table, "iceberg").sample(100), key=lambda row: row["id"] or 0)

        first = refreshed("a", "1,DE\n2,XX\n,YY\n", is_scheduled=True)
        assert [row["id"] for row in rows(ORDERS)] == [1]
        assert [(row["dropped_by"], row["id"], row["dropped_for"]) for row in rows(DROPPED)] == [
            (first, None, ["known", "country"]),
            (first, 2, ["country"]),
        ]
        second = refreshed("b", "3,FR\n4,XX\n", is_scheduled=True)
        assert plans[-1].merge is not None, "only the new rows are read"
        assert [row["id"] for row in rows(ORDERS)] == [1, 3]
        assert [(row["dropped_by"], row["id"]) for row in rows(DROPPED)] == [(first, None), (first, 2), (second, 4)]
        third = refreshed("c", "5,DE\n", "SELECT id, country, id * 2 AS twice FROM raw.orders", full_refresh=True)
        twice = {row["dropped_by"]: row["twice"] for row in rows(DROPPED) if row["id"] == 2}
        assert twice == {first: None, third: 4}, "a new column is null in earlier rows"
        fourth = refreshed("d", "6,DE\n", "SELECT country, CAST(id AS string) AS id FROM raw.orders", full_refresh=True)
        kept = workspace.table(DROPPED, "iceberg")
        assert {row["dropped_by"] for row in kept.sample(100)} == {fourth}, "with other columns, the earlier rows are replaced"
        assert {row["dropped_by"] for row in kept.load().sample(100, kept.versions()[-2].number)} == {first, second, third}
