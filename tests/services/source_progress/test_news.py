"""What a stream hears of a source that tells by its partitions how far it has come."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionWatermark, TimeExtractor
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.services.source_progress import added_since
from airflow_dynamic_tables.services.workspace import Workspace

WATERMARK = PartitionWatermark(timedelta(hours=1), TimeExtractor("2024-01-01 $hour:00:00"))


@pytest.fixture
def events(tmp_path: Path) -> Path:
    (tmp_path / "events").mkdir()
    return tmp_path / "events"


def look(workspace: Workspace, events: Path, since: Increment | None = None) -> Increment:
    source = Source(TableIdentifier("lake", "raw", "events"), "json", str(events), ("hour",), "id bigint")
    return added_since(workspace, source, WATERMARK, "UTC", "events", read_with(since) if since is not None else None)


def read_with(told: Increment) -> SourceState:
    assert told.binding is not None, told
    assert told.binding.state is not None
    return told.binding.state


def file(events: Path, hour: str, name: str, *, seconds_old: int = 60) -> Path:
    folder = events / f"hour={hour}"
    folder.mkdir(exist_ok=True)
    written = folder / name
    written.write_text('{"id": 1}\n')
    changed = written.stat().st_mtime - seconds_old
    os.utime(written, (changed, changed))
    return folder


def names(told: Increment) -> list[str]:
    assert told.binding is not None, told
    return sorted("/".join(path.split("/")[-2:]) for path in told.binding.files)


def test_a_partition_comes_when_it_is_whole(workspace: Workspace, events: Path) -> None:
    nothing = look(workspace, events)
    assert names(nothing) == []
    file(events, "10", "a")
    marker = file(events, "10", "b") / "_SUCCESS"
    assert "hour=10 of lake.raw.events: it has no _SUCCESS yet" in look(workspace, events, nothing).waiting
    marker.touch()
    ten = look(workspace, events, nothing)
    assert names(ten) == ["hour=10/a", "hour=10/b"]
    assert look(workspace, events, ten) == Increment()
    (file(events, "08", "c") / "_SUCCESS").touch()
    late = look(workspace, events, ten)
    assert (names(late), late.late) == (["hour=08/c"], ("hour=08 of lake.raw.events",))


def test_what_may_change_and_look_the_same_is_not_read_yet(workspace: Workspace, events: Path) -> None:
    (file(events, "10", "a", seconds_old=0) / "_SUCCESS").touch()
    first = look(workspace, events)
    assert (names(first), first.waiting) == ([], "a file of partition hour=10 changed just now, or is a link")
    file(events, "10", "a")
    assert names(look(workspace, events, first)) == ["hour=10/a"]


def test_a_partition_that_changed_ends_the_stream_when_it_is_whole_again(workspace: Workspace, events: Path) -> None:
    marker = file(events, "10", "a") / "_SUCCESS"
    marker.touch()
    ten = look(workspace, events)
    marker.unlink()
    file(events, "10", "b")
    rewritten = look(workspace, events, ten)
    assert rewritten.ended == ""
    assert "hour=10 of lake.raw.events was read before and is being rewritten" in rewritten.waiting
    marker.touch()
    assert look(workspace, events, ten).ended == "partition hour=10 was read before, and has changed since"
