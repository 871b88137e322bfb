"""What is kept of a stream beside its table, as whoever looks at the table sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.streaming.stream_plans import NO_PROGRESS
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.services.continuous.streams.places import Place, named_like_a_pattern, stream_progress
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_numbers

LIVE = TableIdentifier("lake", "sales", "live")


def test_how_far_a_stream_is(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        stream_progress(workspace, LIVE)
    (tmp_path / "a.yaml").write_text(f"dynamic_tables: [{{name: {LIVE}, freshness: 1 day, query: SELECT 1 AS x}}]")
    (table,) = load_definitions(tmp_path / "a.yaml", cache=Cache(None)).tables.values()
    run(workspace, RefreshRequest(table, {}, datetime(2024, 1, 1, tzinfo=UTC), "t1", "test"), write_numbers)
    assert stream_progress(workspace, LIVE) is None, "no stream made it"
    folder = workspace.table(LIVE, table.format).folder()
    assert folder is not None
    place = Place(folder)
    stream, _ = place.open("recipe", None)
    assert stream_progress(workspace, LIVE) is None, "no batch has ended"
    told = {
        "batchId": 7,
        "timestamp": "2024-01-01T00:00:07.000Z",
        "sources": [{"description": "files", "numInputRows": 3, "processedRowsPerSecond": 1.55, "endOffset": {"logOffset": 7}}],
        "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 4096, "numRowsDroppedByWatermark": 1}],
        "eventTime": {"watermark": "2024-01-01T00:00:00.000Z"},
    }
    write_text(place.progress_file(stream), NO_PROGRESS.after(told).to_json())
    progress = stream_progress(workspace, LIVE)
    assert (progress.batch, progress.rows, progress.state_rows, progress.state_bytes, progress.late_rows) == (7, 3, 5, 4096, 1)
    assert progress.sources == {"files": '{"logOffset": 7}'}
    write_text(place.progress_file(stream), "half of a")
    assert stream_progress(workspace, LIVE) is None


def test_a_file_that_spark_takes_for_a_pattern_is_found_in_what_it_noted() -> None:
    noted = 'v1\n{"path":"file:///lake/b.json","timestamp":1,"batchId":0}'
    assert named_like_a_pattern(noted) is None
    assert named_like_a_pattern(noted + '\n{"path":"file:///lake/ds%3D1/d%5B1%5D.json"}') == "file:///lake/ds=1/d[1].json"
    assert named_like_a_pattern("") is None
