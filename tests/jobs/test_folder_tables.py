"""Tables of plain files: written by the job, replaced without a promise, read by a child."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample, show_table
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

DAILY, TOTAL = TableIdentifier("lake", "sales", "daily"), TableIdentifier("lake", "sales", "total")
YAML = """
defaults: {catalog: lake, database: sales, freshness: 1 day, format: FORMAT, atomicity: none}
dynamic_tables:
- name: daily
  partitioned_by: [day, kind]
  query: SELECT day, n, kind FROM VALUES (DATE'2024-01-01', 1, 'a b'), (DATE'2024-01-02', 2, 'ü/%') AS v(day, n, kind)
- {name: total, query: "SELECT max(day) AS latest, sum(n) AS n, max(kind) AS kind FROM daily"}
"""


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_parent_and_child_in_plain_folders(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    (tmp_path / "sales.yaml").write_text(YAML.replace("FORMAT", kind))
    definitions = load_definitions(tmp_path / "sales.yaml")
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:

        def refreshed(identifier: TableIdentifier, token: str) -> Version:
            table = definitions.tables[identifier]
            request = RefreshRequest(table, {}, datetime(2024, 3, 1, tzinfo=UTC), token=token, owner=token)

            def job(plan: RefreshPlan) -> None:
                refresh(spark, plan)

            version = run(workspace, request, job)
            assert isinstance(version, Version)
            return version

        refreshed(DAILY, "t1")
        assert refreshed(DAILY, "t2").number == 2
        child = refreshed(TOTAL, "t3")
        assert child.sources == {str(DAILY): "2"}
        (row,) = sample(workspace, TOTAL, 10)
        assert (str(row["latest"]), row["n"], row["kind"]) == ("2024-01-02", 3, "ü/%")
        assert sorted(row["n"] for row in sample(workspace, DAILY, 10)) == [1, 2]
        assert show_table(workspace, DAILY).status.version == 2
        files = spark.read.format(kind).load(f"{tmp_path}/dynamic_tables/warehouse/lake/sales/daily")
        assert {(str(found["day"]), found["kind"], found["n"]) for found in files.collect()} == {
            ("2024-01-01", "a b", 1),
            ("2024-01-02", "ü/%", 2),
        }
        staged = RefreshRequest(
            replace(definitions.tables[DAILY], atomicity="staged"), {}, datetime(2024, 3, 1, tzinfo=UTC), token="t4", owner="t4"
        )
        with pytest.raises(UnsupportedError, match=f"cannot replace {kind} files in one step; use format: iceberg, or accept"):
            run(workspace, staged, lambda plan: None)  # noqa: ARG005 - never called
        assert workspace.ledger.get_stage("t4") is None
