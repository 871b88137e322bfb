"""Partition commit of a table in a Hive metastore: the marker lies beside the rows of the version that readers see."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.continuous.partition_commit import PartitionCommits
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.source_progress import partition_folders
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

YAML = """
dynamic_tables:
- name: hms.told.per_day
  freshness: 1 minute
  format: parquet
  partitioned_by: [ds]
  options:
    partition.fields.ds.date-formatter: yyyy-MM-dd
    sink.partition-commit.policy.kind: success-file
    sink.partition-commit.success-file.name: _DONE
  query: SELECT 1 AS n, '2024-03-01' AS ds
"""


def test_a_marker_lies_in_the_folder_of_the_version(tmp_path: Path, hive_workspace: Workspace) -> None:
    (tmp_path / "t.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "t.yaml")
    (table,) = definitions.tables.values()
    hive_workspace.catalog("hms").create_database("told", CatalogDatabase())
    try:

        def publish(days: dict[str, list[int]]) -> None:
            partitions = PartitionSet.of({"ds": day} for day in ("2024-03-01", "2024-03-02"))
            now = datetime(2024, 3, 5, tzinfo=UTC)
            request = RefreshRequest(table, {}, now, uuid4().hex, "o", partitions=partitions)
            run(hive_workspace, request, lambda plan: write_days(plan, days))

        def markers() -> list[bool]:
            folders = partition_folders(hive_workspace, table.identifier, {})
            return [Path(urlsplit(folder).path, "_DONE").exists() for folder in folders]

        commits = PartitionCommits(hive_workspace, table, {})
        publish({"2024-03-01": [1], "2024-03-02": [2]})
        assert markers() == [False, False]
        assert [row.partition for row in commits.complete()] == ["ds=2024-03-01", "ds=2024-03-02"]
        assert markers() == [True, True]
        publish({"2024-03-01": [3]})  # the other day is empty now, so the metastore has it no more
        assert markers() == [False]
        assert len(commits.complete()) == 2
        assert markers() == [True]
        assert sample(hive_workspace, table.identifier, 9) == [{"n": 3, "ds": "2024-03-01"}]
    finally:
        hive_workspace.catalog("hms").drop_database("told", cascade=True)
