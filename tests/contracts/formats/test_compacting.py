"""Compaction, as every format does it that keeps a version while its files are replaced; the others refuse it, and say why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.small_files import Compacted, Limits
from tests.support.benches.staging import NOON, Bench

MANY = 5
LIMITS = Limits(many=MANY)
SMALL = {"1": list(range(MANY + 1)), "2": [7, 8]}


compacting = pytest.mark.parametrize(
    "bench", ["iceberg/sqlite", pytest.param("parquet/derby", marks=pytest.mark.metastore)], indirect=True
)
not_compacting = pytest.mark.parametrize(
    ("bench", "why"),
    [
        ("toy/folder", "keeps no version while files are replaced"),
        pytest.param("orc/postgres", "what Spark notes of their types", marks=[pytest.mark.metastore, pytest.mark.postgres]),
    ],
    indirect=["bench"],
)


@pytest.fixture
def lake(bench: Bench) -> Bench:
    """A table with a day that is due, and one that is not."""
    bench.scatter(SMALL)
    return bench


def files(bench: Bench) -> dict[str, int]:
    return {str(one.partition.get("ds", "")): one.files for one in bench.table.count_files(LIMITS)}


def compact(
    bench: Bench, limits: Limits = LIMITS, before: Callable[[], object] = lambda: None, token: str = ""
) -> Compacted | None:
    (due,) = bench.table.scattered(limits)
    return bench.stage(token or f"compaction-{uuid4()}").compact(due, limits, once(before))


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Does something when it is called first."""
    waiting = [action]

    def call() -> None:
        if waiting:
            waiting.pop()()

    return call


@not_compacting
def test_who_cannot_compact_says_why(bench: Bench, why: str) -> None:
    bench.scatter(SMALL)
    with pytest.raises(UnsupportedError, match=why):
        bench.table.count_files(LIMITS)
    assert bench.table.scattered(LIMITS) == []
    with pytest.raises((UnsupportedError, StageRejectedError), match=r"not compact"):
        bench.stage("compaction-1").compact(PartitionSet.of([{"ds": "1"}]), LIMITS, lambda: None)
    assert bench.rows() == SMALL


@compacting
def test_files_are_counted(lake: Bench) -> None:
    counted = {one.partition["ds"]: one for one in lake.table.count_files(LIMITS)}
    assert {day: (one.files, one.small, one.is_due, one.why_not) for day, one in counted.items()} == {
        "1": (MANY + 1, MANY + 1, True, None),
        "2": (2, 2, False, None),
    }
    assert lake.table.scattered(LIMITS) == [PartitionSet.of([{"ds": "1"}])]
    assert lake.table.scattered(LIMITS, is_cheap=True) == lake.table.scattered(LIMITS)


@compacting
def test_the_rows_are_the_same_and_there_is_no_version(lake: Bench) -> None:
    """Nothing of what others know of the table changes: its versions, and what a child recorded of it."""
    before = lake.table
    versions = before.versions()
    state = before.read().state
    count = before.count(PartitionSet.of([{"ds": "1"}]))
    done = compact(lake)
    assert done is not None
    assert (done.files, done.made) == (MANY + 1, 1)
    assert files(lake) == {"1": 1, "2": 2}
    assert lake.rows() == SMALL
    assert (lake.table.versions(), lake.table.current()) == (versions, versions[-1])
    again = lake.table.read().state
    assert state is not None
    assert again is not None
    assert replace(again, version=state.version) == state
    assert lake.table.count(PartitionSet.of([{"ds": "1"}])) == count
    assert (lake.table.scattered(LIMITS), lake.table.undone()) == ([], [])


@compacting
def test_again_and_again_it_stands_for_the_same_rows(lake: Bench) -> None:
    state = lake.table.read().state
    compact(lake)
    lake.scatter({"2": list(range(MANY + 2))}, "2")
    compact(lake)
    third = lake.table.read().state
    assert state is not None
    assert third is not None
    assert files(lake) == {"1": 1, "2": 1}
    assert third.partitions is not None
    assert state.partitions is not None
    assert third.partitions["ds=1"] == state.partitions["ds=1"]
    assert third.partitions["ds=2"] != state.partitions["ds=2"]
    assert lake.table.scattered(Limits(many=0))
    assert compact(lake, Limits(many=0)) is None, "one file is one file"
    last = lake.table.read().state
    assert last is not None
    assert last.partitions == third.partitions


@compacting
def test_what_is_refreshed_later_is_as_it_ever_was(lake: Bench) -> None:
    compact(lake)
    assert lake.refresh({"1": [1]}, "1").number == 2
    assert lake.rows() == {"1": [1], "2": [7, 8]}
    assert lake.refresh({"3": [3]}).number == 3
    assert lake.rows() == {"3": [3]}
    assert [version.number for version in lake.table.versions()][-2:] == [2, 3]


@compacting
def test_rows_that_are_replaced_meanwhile_win(lake: Bench) -> None:
    with pytest.raises(CommitRejectedError):
        compact(lake, before=lambda: lake.refresh({"1": [7]}, "1"))
    assert lake.rows() == {"1": [7], "2": [7, 8]}
    assert lake.table.versions()[-1].number == 2


@compacting
def test_a_refresh_of_another_partition_is_not_in_the_way(lake: Bench) -> None:
    assert compact(lake, before=lambda: lake.refresh({"2": [9]}, "2")) is not None
    assert lake.rows() == {**SMALL, "2": [9]}
    assert files(lake) == {"1": 1, "2": 1}


@compacting
def test_one_that_landed_is_found_by_its_token_and_its_files_stay(lake: Bench) -> None:
    staged = lake.stage("compaction-1")
    staged.begin()
    assert staged.outcome() is None
    compact(lake, token="compaction-1")
    outcome = staged.outcome()
    assert outcome is not None
    assert (outcome.number, outcome.token) == (0, "compaction-1")
    staged.fence()
    assert lake.rows() == SMALL
    if lake.hive_format:
        with pytest.raises(ConflictError, match="reads the files"):
            staged.abort()
        assert lake.rows() == SMALL


@compacting
def test_one_that_is_fenced_off_does_not_land(lake: Bench) -> None:
    def fence() -> None:
        lake.stage("compaction-1").fence()
        raise CommitRejectedError("the stage was taken away")

    with pytest.raises(CommitRejectedError, match="taken away"):
        compact(lake, before=fence, token="compaction-1")
    assert lake.stage("compaction-1").outcome() is None
    lake.stage("compaction-1").abort()
    assert (lake.rows(), files(lake)) == (SMALL, {"1": MANY + 1, "2": 2})
    assert lake.refresh({"1": [1]}, "1", at=NOON).number == 2


@compacting
def test_files_that_are_not_alike_stay_apart(lake: Bench) -> None:
    """A second compaction makes two files of two kinds; what is larger than small is only copied, and counted as before."""
    sizes = [one.bytes for one in lake.table.count_files(LIMITS) if one.partition == {"ds": "1"}]
    limits = Limits(many=MANY, small=1)
    assert lake.table.scattered(limits) == []
    limits = Limits(many=MANY, target=sizes[0] // 2)
    done = compact(lake, limits)
    assert done is not None
    assert (done.files, 2 <= done.made <= 3) == (MANY + 1, True)
    assert lake.rows() == SMALL
