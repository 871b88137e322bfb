"""The log of a Delta table is cut off at the oldest kept version, and only files that no version has go: for every reader."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Retention
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, ConfigurationError
from airflow_dynamic_tables.formats.delta.entries import APPLICATION
from airflow_dynamic_tables.formats.delta.history import CHECKPOINT_AFTER
from tests.support.benches.delta import root
from tests.support.benches.staging import Bench
from tests.support.delta_tables import commit_file, require, rewrite

DAY = timedelta(days=1)
LATER = 30 * DAY
TWO = Retention(versions_to_keep=2, version_max_age=7 * DAY)


def expire(bench: Bench, retention: Retention = TWO, after: timedelta = LATER) -> int:
    return bench.table.expire(retention, datetime.now(UTC) + after, tuple)


def orphans(bench: Bench, after: timedelta = LATER) -> int:
    return bench.table.delete_orphans(datetime.now(UTC) + after, tuple).files


def seen(bench: Bench, version: int | None = None) -> list[dict[str, Any]]:
    """The rows that delta-rs reads."""
    rows: list[dict[str, Any]] = DeltaTable(str(root(bench)), version=version).to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def test_other_readers_read_every_kept_version_and_no_other(bench: Bench) -> None:
    for number in range(6):
        bench.refresh({"1": [number], "2": [number]}, *(("1", "2") if number else ()))
    before = {int(version.snapshot): seen(bench, int(version.snapshot)) for version in bench.table.versions()}
    kept = [int(version.snapshot) for version in bench.table.versions()[-2:]]
    assert expire(bench) == 4
    assert orphans(bench) > 0
    assert {entry: seen(bench, entry) for entry in kept} == {entry: before[entry] for entry in kept}
    with pytest.raises(Exception, match=r"LogSegment|not found|No files"):
        seen(bench, kept[0] - 1)
    bench.refresh({"1": [7]}, "1")
    write_deltalake(str(root(bench)), pa.table({"ds": ["3"], "n": [3]}), mode="append")
    assert [row["n"] for row in seen(bench)] == [7, 5, 3]
    assert bench.rows() == {"1": [7], "2": [5], "3": [3]}


def test_a_log_is_cut_off_only_where_everybody_has_seen_the_checkpoint(bench: Bench) -> None:
    for number in range(4):
        bench.refresh({"1": [number]})
    retention = Retention(2, timedelta(0))
    past_the_hour = timedelta(hours=2)
    assert bench.table.expire(TWO, datetime.now(UTC), tuple) == 0
    checkpoint = DeltaLog(bench.table.folder() or "").checkpoints
    assert checkpoint() == []
    os.utime(commit_file(root(bench), 0))
    bench.table.expire(retention, datetime.now(UTC) + past_the_hour, tuple)
    assert checkpoint() != []
    assert len(bench.table.versions()) == 2


def test_a_log_is_cut_off_only_behind_the_version_that_a_dropped_feature_protects(bench: Bench) -> None:
    """Older readers could not read a checkpoint of a version that had the feature, so its engine keeps the log as it was."""
    for number in range(6):
        bench.refresh({"1": [number]})
    protected = {"delta.requireCheckpointProtectionBeforeVersion": "4"}
    rewrite(root(bench), 0, require(["checkpointProtection"], **protected))
    rewrite(root(bench), 0, lambda action: action.get("protocol", {}).update(readerFeatures=[]))
    assert expire(bench, Retention(3, timedelta(0))) == 0
    assert expire(bench, Retention(2, timedelta(0))) == 4
    assert bench.refresh({"1": [7]}).number == 7
    assert seen(bench) == [{"ds": "1", "n": 7}]


def test_the_maintenance_leaves_the_log_of_a_table_that_cannot_be_written_as_it_is(bench: Bench) -> None:
    for number in range(4):
        bench.refresh({"1": [number]})
    rewrite(root(bench), 0, require(["rowTracking", "domainMetadata"]))
    rewrite(root(bench), 0, lambda action: action.get("protocol", {}).update(readerFeatures=[]))
    of_others = root(bench) / "ds=1" / "part-0.parquet"
    of_others.parent.mkdir()
    of_others.touch()
    assert expire(bench) == 0
    orphans(bench)
    assert of_others.exists(), "a feature may refer to files in a way that is not known here"
    assert all(commit_file(root(bench), entry).exists() for entry in range(4))


def test_who_says_nothing_keeps_the_last_day(bench: Bench) -> None:
    for number in range(12):
        bench.refresh({"1": [number]})
    assert expire(bench, DEFAULT_RETENTION, after=timedelta(hours=23)) == 0
    assert expire(bench, DEFAULT_RETENTION, after=timedelta(hours=25)) == 2
    assert [version.number for version in bench.table.versions()] == [*range(3, 13)]


def test_a_cut_that_was_killed_leaves_versions_that_can_be_read(bench: Bench) -> None:
    for number in range(5):
        bench.refresh({"1": [number]})
    DeltaTable(str(root(bench)), version=3).create_checkpoint()
    commit_file(root(bench), 2).unlink()  # the newest of what goes is the first to go
    orphans(bench)
    for version in bench.table.versions():
        assert seen(bench, int(version.snapshot)) == bench.table.sample(9, version.number)
    assert [version.number for version in bench.table.versions()] == [4, 5]
    bench.refresh({"1": [6]})
    assert expire(bench) == 3
    assert bench.rows() == {"1": [6]}
    assert [entry.name[-6:] for entry in sorted((root(bench) / "_delta_log").glob("*.json"))] == ["4.json", "5.json"]


def test_a_commit_that_comes_after_the_log_was_cut_off_over_it_does_not_land_where_nobody_reads(bench: Bench) -> None:
    """Its number was taken by somebody else, whose entry a clean-up has taken away."""
    bench.refresh({"1": [1]})
    late = bench.stage("late")
    result = bench.write(late, {"1": [10]})
    asked: list[str] = []

    def meanwhile() -> None:
        asked.append("late")
        if len(asked) == 1:
            for number in range(2, 6):
                bench.refresh({"1": [number]})
            assert expire(bench) == 3
        else:
            raise CommitRejectedError("it was given up")

    with pytest.raises(CommitRejectedError, match="it was given up"):
        bench.commit(late, result, meanwhile)
    assert asked == ["late", "late"]
    assert late.outcome() is None
    assert bench.rows() == {"1": [5]}
    assert [version.number for version in bench.table.versions()] == [4, 5]
    assert not commit_file(root(bench), 1).exists()


def test_files_of_other_writers_stay_a_week(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    others = [root(bench) / "ds=1" / "part-0.parquet", root(bench) / "part-1.parquet"]
    mine = [root(bench) / name for name in ("README.md", "_mine/1.parquet", ".hidden/1.parquet", "deletion_vector_1.bin")]
    for file in (*others, *mine):
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    assert orphans(bench, after=5 * DAY) == 0
    DeltaTable(str(root(bench))).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 3 weeks"})
    assert orphans(bench, after=20 * DAY) == 0
    DeltaTable(str(root(bench))).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 week"})
    assert orphans(bench, after=20 * DAY) == 2
    assert [file.exists() for file in (*others, *mine)] == [False, False, True, True, True, True]
    assert bench.rows() == {"1": [1]}


def test_files_that_others_committed_are_files_of_the_table(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    write_deltalake(str(root(bench)), pa.table({"ds": ["ä b", "%=/"], "n": [2, 3]}), mode="append")
    DeltaTable(str(root(bench))).create_checkpoint()
    assert orphans(bench) == 0
    assert bench.rows() == {"1": [1], "ä b": [2], "%=/": [3]}
    DeltaTable(str(root(bench))).optimize.compact()
    assert orphans(bench) == 0, "the version before still has them"


def test_half_an_entry_of_a_writer_that_was_killed_goes_and_no_other_file_of_the_log(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    log = root(bench) / "_delta_log"
    left = [log / f".{7:020}.json.{'a' * 32}.tmp", log / "_commit_0a-1b.json.tmp"]
    for file in (*left, log / "mine.txt"):
        file.write_text("x")
    assert orphans(bench) == 2
    assert (log / "mine.txt").exists()


def test_nothing_is_deleted_in_a_folder_that_holds_another_table(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    write_deltalake(str(root(bench) / "theirs"), pa.table({"n": [1]}))
    with pytest.raises(ConfigurationError, match="theirs, which is not of this table; nothing in it is deleted"):
        orphans(bench)


def test_nothing_is_deleted_while_a_part_of_the_log_cannot_be_read(bench: Bench) -> None:
    for number in range(3):
        bench.refresh({"1": [number]})
    DeltaTable(str(root(bench)), version=2).create_checkpoint()
    commit_file(root(bench), 1).write_text('{"add":')
    with pytest.raises(CatalogUnavailableError, match="cannot be read"):
        orphans(bench)
    commit_file(root(bench), 0).unlink()
    commit_file(root(bench), 1).unlink()
    (checkpoint,) = (root(bench) / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.unlink()
    with pytest.raises(CatalogUnavailableError):
        orphans(bench)


@pytest.mark.large
def test_a_checkpoint_is_written_now_and_then(bench: Bench) -> None:
    for number in range(CHECKPOINT_AFTER + 1):
        bench.refresh({"1": [number]})
    assert DeltaLog(bench.table.folder() or "").checkpoints() == [CHECKPOINT_AFTER]
    assert bench.rows() == {"1": [CHECKPOINT_AFTER]}


def test_the_log_is_not_cut_off_at_a_checkpoint_that_its_writer_never_ended(bench: Bench) -> None:
    for number in range(6):
        bench.refresh({"1": [number]})
    for name in ("checkpoint.0000000001.0000000002.parquet", "checkpoint.parquet#1"):
        half = root(bench) / "_delta_log" / f"{4:020}.{name}"
        half.write_bytes(b"PAR1")
    assert expire(bench) == 4
    assert seen(bench, 4) == [{"ds": "1", "n": 4}]
    assert seen(bench) == [{"ds": "1", "n": 5}]


def test_a_copy_of_the_log_within_it_is_none_of_its_entries(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    copy = root(bench) / "_delta_log" / "copy" / commit_file(root(bench), 7).name
    copy.parent.mkdir()
    copy.write_text("{}")
    assert DeltaLog(bench.table.folder() or "").versions() == [0]
    for number in range(2, 12):
        bench.refresh({"1": [number]})
    assert expire(bench) > 0
    assert copy.exists()


def test_who_looked_at_a_table_before_its_log_was_cut_off_still_learns_what_it_held(bench: Bench) -> None:
    """The older of two checkpoints goes, on which somebody else relies who has opened the table and not read it yet."""
    for number in range(4):
        bench.refresh({"1": [number]})
    expire(bench)
    opened = open_snapshot(bench.table.folder() or "")
    assert opened is not None
    DeltaTable(str(root(bench)), version=3).create_checkpoint()
    for file in (root(bench) / "_delta_log").glob(f"{2:020}.*"):
        file.unlink()
    assert (opened.transaction("nobody"), opened.transaction(APPLICATION)) == (None, 4)
    assert len(opened.files) == 1
