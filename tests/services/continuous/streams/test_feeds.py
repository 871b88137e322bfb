"""What is new in a table becomes feeds, whoever dies meanwhile; the job's part is done here by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.plan import Feed, SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.streaming.feeds import LoggedFile, write_entry
from airflow_dynamic_tables.formats.news import News
from airflow_dynamic_tables.services.continuous.streams.feeds import FeedPlace, StreamFeeds, TableFeeds


class Table:
    """A table to which files are appended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = ["a"]
        self.ended = ""
        self.waiting = ""
        self.clock = datetime(2024, 1, 1, tzinfo=UTC)

    def look(self, since: SourceState | None) -> News:
        seen = len(since.partitions or {}) if since is not None else 0
        if self.ended or self.waiting:
            return News(ended=self.ended, waiting=self.waiting)
        if since is not None and seen == len(self.files):
            return News()
        state = SourceState(f"v{len(self.files)}", partitions=dict.fromkeys(self.files, ""))
        return News(SourceBinding("t", "t", "parquet", state.version, tuple(self.files[seen:]), state=state))

    def feeds(self, run: str, *, has_begun: bool = False) -> TableFeeds:
        """As the worker of a run sees them."""
        return TableFeeds("t", FeedPlace(str(self.folder), run, has_begun), self.look, 0, lambda: self.clock)

    def publish(self, number: int, run: str, keep: Sequence[int] = ()) -> None:
        """What the job does."""
        for kept in (*keep, number):
            (self.folder / f"{kept}-{run}/rows").mkdir(parents=True, exist_ok=True)
        files = [LoggedFile(f"file:{self.folder}/{kept}-{run}/rows/part", 1, kept) for kept in (*keep, number)]
        (self.folder / "_spark_metadata").mkdir(exist_ok=True)
        (self.folder / f"_spark_metadata/{number}.compact").write_text(write_entry(files))

    def read_by(self, number: int, run: str) -> tuple[str, ...]:
        """The files of a feed."""
        return Feed.from_json((self.folder / f"{number}-{run}/feed.json").read_text()).source.files


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
    assert sorted(path.name for path in table.folder.glob("*-r")) == ["2-r", "3-r"]
    assert sorted(path.name for path in table.folder.glob("_spark_metadata/*")) == ["1.compact", "2.compact"]


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


def test_a_batch_is_as_fresh_as_the_look_that_found_its_rows(table: Table) -> None:
    feeds = StreamFeeds({"t": table.feeds("r")})
    began = table.clock
    assert feeds.turn() == ""
    table.publish(0, "r")
    table.clock += timedelta(minutes=10)  # copying took so long
    assert feeds.fresh_up_to(table.clock) == began
    table.clock += timedelta(minutes=1)
    assert feeds.turn() == "", "there is nothing new"
    assert feeds.fresh_up_to(table.clock) == table.clock
    table.files.append("b")
    nothing_new = table.clock
    table.clock += timedelta(minutes=1)
    assert feeds.turn() == ""
    assert feeds.fresh_up_to(table.clock) == nothing_new, "the job has not taken it"
