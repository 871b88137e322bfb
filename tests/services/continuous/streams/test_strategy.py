"""A stream on a real Spark: every batch is one version, and what the table has is what its query returns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.continuous.streams import strategy
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.streams import TABLE, WINDOWS, StreamSite, ids, rows, turn_until

pytestmark = pytest.mark.spark


def test_files_become_rows_once_each(site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]) -> None:
    site.arrive("1", (1, "00:00:01"), (2, "00:00:02"))
    with closing(site.streaming(workspace, submit, lambda: None)) as stream:
        (first,) = turn_until(stream, lambda: ids(workspace) == [1, 2])
        site.arrive("2", (3, "00:00:03"))
        (second,) = turn_until(stream, lambda: ids(workspace) == [1, 2, 3])
        assert (first.number, second.number) == (1, 2)
        assert first.data_timestamp is not None
        assert second.data_timestamp is not None
        assert first.data_timestamp <= second.data_timestamp <= workspace.now()
    with closing(site.streaming(workspace, submit, lambda: None)) as again:
        site.arrive("3", (4, "00:00:04"))
        turn_until(again, lambda: ids(workspace) == [1, 2, 3, 4])
        assert [version.number for version in workspace.table(TABLE, "iceberg").versions()] == [1, 2, 3]
    last = workspace.ledger.list_refreshes(TABLE)[0]
    assert (last.action, last.reason_code, last.rows) == (RefreshAction.ADD, ReasonCode.STREAMED, 1)


@pytest.mark.large
def test_a_table_that_others_changed_is_made_anew(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A rollback while the stream stands still, a refresh by hand while it runs, and a checkpoint that is gone."""
    site.arrive("1", (1, "00:00:01"))
    with closing(site.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1])
        site.arrive("2", (2, "00:00:02"))
        turn_until(stream, lambda: ids(workspace) == [1, 2])
        version = workspace.table(TABLE, "iceberg").current()
        assert version.data_timestamp is not None
        # For no later time: a stream that begins within the same second would be older.
        request = RefreshRequest(
            stream.work.table, stream.work.sources, version.data_timestamp, "by hand", "somebody", full_refresh=True
        )
        run(workspace, request, submit)
        assert workspace.table(TABLE, "iceberg").position() is None
        site.arrive("3", (3, "00:00:03"))
        turn_until(stream, lambda: ids(workspace) == [1, 2, 3])
        assert "another writer changed the table" in caplog.text
    (checkpoint,) = site.home.rglob("_streams/*/checkpoint")
    shutil.rmtree(checkpoint)
    site.arrive("4", (4, "00:00:04"))
    with closing(site.streaming(workspace, submit, lambda: None)) as again:
        turn_until(again, lambda: ids(workspace) == [1, 2, 3, 4])
    assert len(list(site.home.rglob("_streams/*/checkpoint"))) == 1, "what the streams before left is deleted"


def test_a_changed_query_begins_a_new_stream(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]
) -> None:
    site.arrive("1", (1, "00:00:01"))
    with closing(site.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1])
    changed = replace(site, query="SELECT -id AS id, ts FROM raw.events")
    with closing(changed.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [-1])
    assert workspace.table(TABLE, "iceberg").sample(9, 1) != workspace.table(TABLE, "iceberg").sample(9, 2)


@pytest.mark.large
def test_windows_close_by_the_watermark_and_late_rows_are_told(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = replace(site, query=WINDOWS, watermark="watermark: {column: ts, delay: 10 seconds}")
    with closing(waiting.streaming(workspace, submit, lambda: None)) as stream:
        waiting.arrive("1", (1, "00:00:05"), (2, "00:01:05"))
        waiting.arrive("2", (3, "00:00:50"), (4, "00:01:10"))
        turn_until(stream, lambda: rows(workspace) == [("00:00", 2, 4)])
        waiting.arrive("3", (5, "00:00:55"), (6, "00:02:30"))
        turn_until(stream, lambda: rows(workspace) == [("00:00", 2, 4), ("00:01", 2, 6)])
    assert "1 late rows" in caplog.text
    late = [refresh for refresh in workspace.ledger.list_refreshes(TABLE) if refresh.expectations]
    (left_out,) = late[0].expectations
    assert (len(late), left_out.name, left_out.violations, left_out.action) == (1, "late_rows", 1, "drop")
    assert late[0].version is None, "its batch had no other rows"


@pytest.mark.large
def test_rows_that_come_twice_are_there_once(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]
) -> None:
    """What was seen is remembered over a restart; a refresh by hand of the same files has the same rows."""
    told_apart = replace(site, watermark="watermark: {column: ts, delay: 1 minute, deduplicate: [id]}")
    told_apart.arrive("1", (1, "00:00:01"), (2, "00:00:02"), (1, "00:00:03"))
    with closing(told_apart.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1, 2])
    told_apart.arrive("2", (2, "00:00:30"), (3, "00:00:31"))
    with closing(told_apart.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1, 2, 3])
        work = stream.work
    request = RefreshRequest(work.table, work.sources, workspace.now(), "by hand", "somebody", full_refresh=True)
    run(workspace, request, submit)
    assert ids(workspace) == [1, 2, 3]


@pytest.mark.large
def test_what_was_seen_is_remembered_when_spark_died_before_it_noted_a_batch_that_the_table_has(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]
) -> None:
    told_apart = replace(site, watermark="watermark: {column: ts, delay: 1 minute, deduplicate: [id]}")
    told_apart.arrive("1", (1, "00:00:01"), (2, "00:00:02"))
    with closing(told_apart.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1, 2])
    (checkpoint,) = site.home.glob("warehouse/lake/sales/*/_streams/*/checkpoint")
    for noted in (*checkpoint.glob("commits/*"), *checkpoint.glob("offsets/[!0]*")):
        noted.unlink()
    told_apart.arrive("2", (2, "00:00:30"), (3, "00:00:31"))
    with closing(told_apart.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1, 2, 3])


@pytest.mark.large
def test_distinct_rows_wait_for_the_watermark(
    site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]
) -> None:
    distinct = replace(
        site, query="SELECT DISTINCT id, ts FROM raw.events", watermark="watermark: {column: ts, delay: 10 seconds}"
    )
    distinct.arrive("1", (1, "00:00:01"), (2, "00:00:02"), (1, "00:00:01"))
    distinct.arrive("2", (1, "00:00:01"), (3, "00:01:00"))
    with closing(distinct.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: ids(workspace) == [1, 2])


@pytest.mark.large
def test_two_streams_meet(site: StreamSite, workspace: Workspace, submit: Callable[[RefreshPlan], None]) -> None:
    """What one source has waits for the other, over a restart; once none can come any more, it stands there alone."""
    meeting = replace(
        site,
        sources=("events", "clicks"),
        watermark="watermark: {column: ts, delay: 10 seconds}",
        query="""
    SELECT e.id, date_format(c.ts, 'mm:ss') AS clicked FROM raw.events e LEFT JOIN raw.clicks c
    ON e.id = c.id AND c.ts BETWEEN e.ts AND e.ts + INTERVAL 20 SECONDS""",
    )
    meeting.arrive("1", (1, "00:00:01"), (2, "00:00:02"), (3, "00:00:03"))
    meeting.arrive("1", (1, "00:00:05"), source="clicks")
    with closing(meeting.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: rows(workspace) == [(1, "00:05")])
    meeting.arrive("2", (2, "00:00:07"), (3, "00:00:40"), source="clicks")
    with closing(meeting.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: rows(workspace) == [(1, "00:05"), (2, "00:07")])
        meeting.arrive("3", (9, "00:02:00"))
        meeting.arrive("3", (9, "00:02:00"), source="clicks")
        turn_until(stream, lambda: rows(workspace) == [(1, "00:05"), (2, "00:07"), (3, None), (9, "02:00")])


@pytest.mark.large
def test_every_file_of_folders_in_folders_is_read_as_declared(
    site: StreamSite, submit: Callable[[RefreshPlan], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are declared first, of a folder that has no partition yet when the stream begins; a name like a pattern."""
    monkeypatch.setattr(strategy, "_LONGEST_TURN", 1.0)
    source = f"""
- {{name: raw.events, format: json, path: {site.home}/events, schema: "ds string, page string", partitioned_by: [ds]}}
- {{name: raw.nested, format: json, path: {site.home}/nested, schema: page string}}"""
    query = "SELECT page, ds FROM raw.events UNION ALL SELECT page, 'none' FROM raw.nested"

    def written(file: str, page: str) -> None:
        whole = site.home / file
        whole.parent.mkdir(parents=True, exist_ok=True)
        half = whole.with_name(".half")
        half.write_text(json.dumps({"page": page}))
        half.rename(whole)

    reader = replace(site, source=source, query=query)
    written("nested/a.json", "a")
    with site.open() as workspace, closing(reader.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: rows(workspace) == [("a", "none")])
        written("events/ds=1/b.json", "b")
        written("nested/2024/c.json", "c")
        turn_until(stream, lambda: len(rows(workspace)) >= 3)
        assert rows(workspace) == [("a", "none"), ("b", "1"), ("c", "none")]
        written("nested/d[1].json", "d")
        with pytest.raises(UnsupportedError, match=r"/nested/d\[1\].json has signs of a pattern in its name .* rename it"):
            turn_until(stream, lambda: len(rows(workspace)) > 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "parquet", "strategy": "auto"}, "in one step; use format: iceberg"),
        ({"more": "expectations: [{unique: [id]}]"}, "one batch at a time"),
        ({"more": "expectations: [{row_count: {min: 1}}]"}, "batches of any size"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    site: StreamSite, workspace: Workspace, changes: dict[str, Any], message: str
) -> None:
    stream = replace(site, **changes).streaming(workspace, lambda _: None, lambda: None)
    with pytest.raises(UnsupportedError, match=message):
        stream.turn(1)
