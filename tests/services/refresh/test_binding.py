"""What a source is bound to, beyond what its format knows of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, parse_partitions
from airflow_dynamic_tables.services.refresh.running import begin
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

YAML = """
defaults: {catalog: lake, database: sales}
sources:
- name: raw.events
  format: json
  path: events
  schema: id bigint, ts timestamp, ds string
  watermark: {column: ts, delay: 1 minute, deduplicate: [id]}
dynamic_tables:
- {name: daily, freshness: 1 day, partitioned_by: [ds], query: "SELECT id, ds FROM raw.events"}
"""


def test_partitions_of_rows_that_are_told_apart_are_not_made_one_by_one(tmp_path: Path) -> None:
    """Each would leave a row that stands in both to the other."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text('{"id": 1, "ds": "1"}')
    (tmp_path / "a.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "a.yaml")
    table = definitions.tables[TableIdentifier("lake", "sales", "daily")]
    request = RefreshRequest(
        table, definitions.sources, datetime(2024, 1, 1, tzinfo=UTC), "t1", "test", partitions=parse_partitions("ds=1")
    )
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        with pytest.raises(UnsupportedError, match="told apart by id over all partitions"):
            begin(workspace, request)
        assert workspace.ledger.list_stages() == []
