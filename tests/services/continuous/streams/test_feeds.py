"""What is new in a table becomes feeds, whoever dies meanwhile; the job's part is done here by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.plan import Feed, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.streaming.stream_plans import LoggedFile, write_entry
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.services.continuous.streams.feeds import FeedPlace, StreamFeeds, TableFeeds


class Table:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = ["a"]
        self.ended = ""
        self.waiting = ""
        self.clock = datetime(2024, 1, 1, tzinfo=UTC)

    def look(self, since: SourceState | None) -> Increment:
        seen = len(since.partitions or {}) if since is not None else 0
        if self.ended or self.waiting:
            return Increment(ended=self.ended, waiting=self.waiting)
        if since is not None and seen == len(self.files):
            return Increment()
        state = SourceState(f"v{len(self.files)}", partitions=dict.fromkeys(self.files, ""))
        return Increment(SourceBinding("t", "t", "parquet", state.version, tuple(self.files[seen:]), state=state))

    def feeds(self, run: str, *, has_begun: bool = False) -> TableFeeds:
        """As the worker of a run sees them."""
        return TableFeeds("t", FeedPlace(str(self.folder), run, has_begun), self.look, 0, lambda: self.clock)

    def publish(self, number: int, run: str, keep: Sequence[int] = ()) -> None:
        for kept in (*keep, number):
            (self.folder / f"{kept}-{run}/rows").mkdir(parents=True, exist_ok=True)
        files = [LoggedFile(f"file:{self.folder}/{kept}-{run}/rows/part", 1, kept) for kept in (*keep, number)]
        (self.folder / "_spark_metadata").mkdir(exist_ok=True)
        (self.folder / f"_spark_metadata/{number}.compact").write_text(write_entry(files))

    def read_by(self, number: int, run: str) -> tuple[str, ...]:
        return Feed.from_json((self.folder / f"{number}-{run}/feed.json").read_text()).source.files


def plan_of(view: str) -> RefreshPlan:
    source = SourceBinding("t", view, "parquet", "stream", is_fed=True)
    action = RefreshAction.ADD
    return RefreshPlan("r", "a.b.c", datetime(2024, 1, 1, tzinfo=UTC), action, "", "", "", "", "parquet", True, sources=(source,))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "feeds")


def test_every_file_is_in_one_feed_that_counts(table: Table) -> None:
    """Also when a worker dies after it offered one, before the job took it or after."""
    first = table.feeds("run1")
    assert first.turn() == ""
    assert table.read_by(0, "run1") == ("a",)
    table.files.append("b")
    assert first.turn() == ""
    assert not (table.folder / "1-run1").exists(), "the job has not taken the last one"
    table.publish(0, "run1")
    assert first.turn() == ""
    assert table.read_by(1, "run1") == ("b",)

    table.files.append("c")
    second = table.feeds("run2", has_begun=True)
    assert second.turn() == ""
    assert table.read_by(1, "run2") == ("b", "c"), "what the first one offered was never taken"
    table.publish(1, "run1", [0])  # but its job lives still, and was faster
    assert second.turn() == ""
    assert table.read_by(2, "run2") == ("c",)


def test_copies_go_when_the_log_does_not_name_them_any_more(table: Table) -> None:
    feeds = table.feeds("r")
    assert feeds.turn() == ""
    for number in (0, 1, 2):
        table.files.append(f"more {number}")
        table.publish(number, "r", [number - 1] if number == 1 else [])
        assert feeds.turn() == ""
    assert sorted(path.parent.name for path in table.folder.glob("*/rows")) == ["2-r"]
    for number in range(3, 24):
        table.publish(number, "r")
        table.files.append(f"more {number}")
        assert feeds.turn() == ""
    assert len(list(table.folder.glob("*-r"))) == 21, "what tells of them stays a little longer"
    assert len(list(table.folder.glob("_spark_metadata/*"))) == 20


@pytest.mark.parametrize("lost", ["_spark_metadata/0.compact", "0-r/feed.json"])
def test_what_is_lost_is_not_read_again_without_a_word(table: Table, lost: str) -> None:
    assert table.feeds("r").turn() == ""
    table.publish(0, "r")
    (table.folder / lost).unlink()
    assert "what was read of it is not known any more" in table.feeds("s", has_begun=True).turn()
    (table.folder / "_spark_metadata/0.compact").write_text("v1\n{half")
    assert "what was read of it is not known any more" in table.feeds("s", has_begun=True).turn()


def test_a_table_that_was_changed_ends_the_stream(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    feeds = StreamFeeds({"t": table.feeds("r")})
    assert feeds.turn() == ""
    table.publish(0, "r")
    table.waiting = "it is being written anew"
    caplog.set_level("INFO")
    assert [feeds.turn(), feeds.turn()] == ["", ""]
    assert caplog.text.count("it is being written anew") == 1
    table.ended = "a file is gone"
    assert feeds.turn() == "t: a file is gone"


def noted(*numbers: int) -> str:
    return "v1\n" + "\n".join(f'{{"path":"file:/x/feeds/t/{number}-r/rows/part-0"}}' for number in numbers)


def test_a_batch_has_what_spark_noted_and_is_as_fresh_as_the_look_that_found_it(table: Table) -> None:
    feeds = StreamFeeds({"t": table.feeds("r")}, {"t"})
    began = table.clock
    assert feeds.turn() == ""
    table.publish(0, "r")
    assert feeds.turn() == "", "there is nothing new"
    table.clock += timedelta(minutes=10)
    assert feeds.turn() == ""
    assert feeds.read_by(noted(0), table.clock)["t"].seen_at == table.clock
    assert feeds.read_by(noted(0), began)["t"].seen_at == began, "planned before anybody looked again"
    table.files.append("b")
    table.clock += timedelta(minutes=1)
    found = table.clock
    assert feeds.turn() == ""
    table.publish(1, "r")
    table.clock += timedelta(minutes=1)
    both, only_the_first = (feeds.read_by(text, table.clock) for text in (noted(0, 1), noted(0)))
    assert (both["t"].seen_at, only_the_first["t"].seen_at) == (found, began)
    for read, files in ((both, ["a", "b"]), (only_the_first, ["a"])):
        (source,) = feeds.bound(plan_of("t"), read).sources
        assert source.state is not None
        assert (source.version, list(source.state.partitions or ())) == (f"v{len(files)}", files)
    assert feeds.read_by("", table.clock) == {}
