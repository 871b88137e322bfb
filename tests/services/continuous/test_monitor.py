"""How often a loop looks for new partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import sentinel
from uuid import uuid4

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.continuous.base import Work
from airflow_dynamic_tables.services.continuous.loop import Monitor
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest

YAML = """
sources:
- name: events
  format: hive
  watermark: source
  options: {partition.time-interval: 1 hour, streaming-source.monitor-interval: 30 s}
dynamic_tables:
- {name: t, freshness: 10 seconds, query: SELECT * FROM events}
"""


def test_a_loop_looks_no_more_often_than_its_source_says(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(YAML)
    definitions = load_definitions(tmp_path / "t.yaml")
    (table,) = definitions.tables.values()
    work = Work(sentinel.workspace, table, definitions.sources, (), uuid4(), "o", lambda _plan: None, lambda: None)
    request = RefreshRequest(table, definitions.sources, datetime(2024, 1, 1, tzinfo=UTC), "token", "o")
    seconds = iter([1000.0, 1010.0, 1029.9, 1030.0])
    monitor = Monitor(work, lambda: next(seconds))
    assert [monitor.next_batch(request) is not None for _ in range(4)] == [True, False, False, True]
    (source,) = definitions.sources.values()
    assert source.watermark is not None
    assert source.watermark.monitor_interval == timedelta(seconds=30)
    ordinary = {source.identifier: replace(source, watermark=None)}
    monitor = Monitor(replace(work, sources=ordinary), lambda: 1.0)
    assert [monitor.next_batch(request) is not None for _ in range(2)] == [True, True]
