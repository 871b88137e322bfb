"""Delta tables made by Spark as a job makes them, of columns of every kind, and read by Spark and delta-rs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales, freshness: 1 day}
dynamic_tables:
- name: kinds
  format: delta
  partitioned_by: [ds]
  query: |
    SELECT named_struct('select', id, 'list', array(named_struct('x', CAST(NULL AS INT)))) AS `order`,
      map('k', array(id)) AS `group`, X'00FF' AS `from`, CAST(1.50 AS DECIMAL(10, 2)) AS amount, DATE'2024-01-01' AS day,
      TIMESTAMP'2024-03-31 01:30:00.000005 UTC' AS at, CAST(id AS FLOAT) AS f, id % 2 = 0 AS even,
      CAST(NULL AS STRING) AS nothing,
      concat('a b/%=é', id % 2) AS ds, id
    FROM range(4)
- name: copy
  format: delta
  partitioned_by: [ds]
  timezone: Europe/Berlin
  query: SELECT * FROM kinds
"""


def made(workspace: Workspace, spark: SparkSession, folder: Path, name: str, *days: str) -> list[dict[str, object]]:
    """Refresh a table by Spark; its rows as delta-rs reads them, by id."""
    path = folder / "definitions.yaml"
    path.write_text(YAML)
    definitions = load_definitions(path)
    (table,) = (table for identifier, table in definitions.tables.items() if identifier.table == name)
    partitions = PartitionSet.of({"ds": day} for day in days) if days else None

    def job(plan: RefreshPlan) -> None:
        refresh(spark, plan)

    version = run(workspace, RefreshRequest(table, {}, MARCH, str(uuid4()), "me", partitions), job)
    assert isinstance(version, Version)
    folder_of = (workspace.existing_table(table.identifier).folder() or "").removeprefix("file://")
    rows: list[dict[str, object]] = DeltaTable(folder_of).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.mark.large
def test_columns_of_every_kind_come_back_as_they_were(workspace: Workspace, spark: SparkSession, tmp_path: Path) -> None:
    rows = made(workspace, spark, tmp_path, "kinds")
    assert rows[3] == {
        "order": {"select": 3, "list": [{"x": None}]},
        "group": [("k", [3])],
        "from": b"\x00\xff",
        "amount": Decimal("1.50"),
        "day": date(2024, 1, 1),
        "at": datetime(2024, 3, 31, 1, 30, 0, 5, tzinfo=UTC),
        "f": 3.0,
        "even": False,
        "nothing": None,
        "ds": "a b/%=é1",
        "id": 3,
    }
    assert made(workspace, spark, tmp_path, "copy") == rows, "another table of ours reads what delta-rs reads"
    assert made(workspace, spark, tmp_path, "copy", "a b/%=é1") == rows
