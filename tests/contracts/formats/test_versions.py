"""Earlier versions: read, restored, forgotten; and what nothing refers to any more is deleted, nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Base, Retention, Version
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, VersionNotFoundError
from tests.support.benches.delta import DELTA
from tests.support.benches.staging import COLUMNS, NOON, Bench

DAY = timedelta(days=1)
TWO = Retention(versions_to_keep=2, version_max_age=7 * DAY)


FORMATS_WITH_VERSIONS = ["iceberg/sqlite", DELTA, pytest.param("iceberg/postgres", marks=pytest.mark.postgres)]

pytestmark = pytest.mark.parametrize("bench", FORMATS_WITH_VERSIONS, indirect=True)


def soon() -> datetime:
    """A time when everything made by now is old."""
    return datetime.now(UTC) + 30 * DAY


def restore(bench: Bench, number: int, token: str | None = None, before: Callable[[], None] = lambda: None) -> Version:
    return bench.stage(token or str(uuid4())).restore(number, before)


def rows(bench: Bench, version: int) -> list[int]:
    return sorted(row["n"] for row in bench.table.sample(100, version))


def expire(bench: Bench, *pinned: str, retention: Retention = TWO) -> int:
    return bench.table.expire(retention, soon(), lambda: pinned)


def orphans(bench: Bench, *held: str) -> tuple[int, int]:
    deleted = bench.table.delete_orphans(soon(), lambda: held)
    return deleted.files, deleted.bytes


def numbers(bench: Bench) -> list[int]:
    return [version.number for version in bench.table.versions()]


def test_a_restored_version_replaces_everything(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"2": [20]}, "2")
    assert restore(bench, 2).partitions == WHOLE_TABLE
    assert [version.partitions for version in bench.table.versions()] == [
        WHOLE_TABLE,
        PartitionSet.of([{"ds": "2"}]),
        WHOLE_TABLE,
    ]


def test_every_kept_version_can_be_read(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"2": [20]}, "2")
    bench.refresh({})
    assert [rows(bench, number) for number in (1, 2, 3)] == [[1, 2], [1, 20], []]
    with pytest.raises(VersionNotFoundError, match=r"Version 4 of sales.*\.revenue is not kept .*; kept are: 1, 2, 3"):
        rows(bench, 4)


def test_a_version_is_restored_as_a_new_one(bench: Bench) -> None:
    first = bench.refresh({"1": [1], "2": [2]}, at=NOON - DAY)
    bench.refresh({"2": [20], "3": [30]}, "2", "3")
    restored = restore(bench, 1, "back")
    assert (restored.number, restored.token, restored.data_timestamp) == (3, "back", NOON - DAY)
    assert restored.sources == first.sources
    assert bench.rows() == {"1": [1], "2": [2]}
    assert bench.table.current() == restored
    assert bench.stage("back").outcome() == restored
    bench.refresh({"2": [21]}, "2")
    assert bench.rows() == {"1": [1], "2": [21]}
    assert [rows(bench, number) for number in (1, 2, 3, 4)] == [[1, 2], [1, 20, 30], [1, 2], [1, 21]]


def test_restoring_again_with_the_same_token_is_the_same_version(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})
    assert restore(bench, 1, "back") == restore(bench, 1, "back")
    assert numbers(bench) == [1, 2, 3]


def test_columns_that_a_restored_version_did_not_have_are_null(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    bench.commit(staged, bench.write(staged, {"1": [2]}, (*COLUMNS, Column("text", "string"))))
    restore(bench, 1)
    assert bench.table.sample(10) == [{"ds": "1", "n": 1, "text": None}]
    assert bench.table.sample(10, 1) == [{"ds": "1", "n": 1}]


def test_what_is_raised_before_publishing_ends_the_restoration(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})

    def refuse() -> None:
        raise CommitRejectedError("not yours any more")

    with pytest.raises(CommitRejectedError, match="not yours any more"):
        restore(bench, 1, before=refuse)
    with pytest.raises(VersionNotFoundError, match="kept are: 1, 2"):
        restore(bench, 7)
    assert bench.rows() == {"1": [2]}


def test_a_commit_meanwhile_is_not_lost(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"1": [10]}, "1")
    raced: list[Version] = []

    def somebody_commits() -> None:
        if not raced:
            raced.append(bench.refresh({"2": [20]}, "2"))

    assert restore(bench, 1, before=somebody_commits).number == 4
    assert bench.rows() == {"1": [1], "2": [2]}
    assert rows(bench, 3) == [10, 20]


def test_versions_beyond_the_retention_are_forgotten_and_their_files_deleted(bench: Bench, tmp_path: Path) -> None:
    for number in range(1, 6):
        bench.refresh({"1": [number], "2": [2]})
    before = [rows(bench, number) for number in (4, 5)]
    assert expire(bench) == 3
    assert numbers(bench) == [4, 5]
    files, size = orphans(bench)
    assert files >= 3 * 2
    assert size > 0
    assert [rows(bench, number) for number in (4, 5)] == before
    assert len([*tmp_path.rglob("data/**/*.parquet")]) == 4
    assert not [folder for folder in tmp_path.rglob("data/*") if folder.is_dir() and not any(folder.iterdir())]
    assert bench.refresh({"1": [6]}, "1").number == 6
    assert bench.rows() == {"1": [6], "2": [2]}
    assert (expire(bench), orphans(bench)[0] > 0) == (1, True)
    assert len([*tmp_path.rglob("data/**/*.parquet")]) == 3
    assert orphans(bench) == (0, 0)


def test_young_versions_and_young_files_stay(bench: Bench) -> None:
    for number in range(4):
        bench.refresh({"1": [number]})
    now = datetime.now(UTC)
    assert bench.table.expire(TWO, now + 6 * DAY, tuple) == 0
    assert expire(bench) == 2
    deleted = bench.table.delete_orphans(now - DAY, lambda: ())
    assert (deleted.files, deleted.bytes) == (0, 0)


def test_nothing_is_forgotten_while_it_is_not_worth_it(bench: Bench) -> None:
    for number in range(5):
        bench.refresh({"1": [number]})
    assert bench.table.expire(TWO, soon(), tuple, least=4) == 0
    assert numbers(bench) == [1, 2, 3, 4, 5]
    assert bench.table.expire(TWO, soon(), tuple, least=3) == 3
    assert numbers(bench) == [4, 5]


def test_a_pinned_version_stays_with_all_newer_ones(bench: Bench) -> None:
    made = [bench.refresh({"1": [number]}) for number in range(5)]
    assert expire(bench, made[1].snapshot) == 1
    assert numbers(bench) == [2, 3, 4, 5]
    assert expire(bench, made[2].token) == 1
    assert numbers(bench) == [3, 4, 5]
    orphans(bench)
    assert [rows(bench, number) for number in (3, 4, 5)] == [[2], [3], [4]]


def test_a_restored_version_keeps_files_of_a_forgotten_one(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})
    restore(bench, 1)
    assert expire(bench, retention=Retention(1, DAY)) == 2
    assert orphans(bench)[0] > 0
    assert bench.rows() == {"1": [1]}
    assert numbers(bench) == [3]


def test_fences_are_no_versions(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})
    for number in range(5):
        bench.stage(f"zombie{number}").fence()
    assert expire(bench) == 0
    assert numbers(bench) == [1, 2]
    bench.refresh({"1": [3]})
    bench.refresh({"1": [4]})
    assert expire(bench) == 7
    assert bench.rows() == {"1": [4]}


def test_files_of_a_stage_that_is_held_stay(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    orphans(bench)
    living, dead = bench.stage("living", "2"), bench.stage("dead", "3")
    result = bench.write(living, {"2": [2]})
    bench.write(dead, {"3": [3]})
    assert orphans(bench, living.begin())[0] == 1
    assert not Path(dead.begin().removeprefix("file://")).exists()
    bench.commit(living, result)
    assert bench.rows() == {"1": [1], "2": [2]}


def test_metadata_of_a_commit_under_way_stays_whatever_the_clock_says(bench: Bench) -> None:
    """The commit has written its manifests when files are deleted by somebody whose clock is a month ahead."""
    bench.refresh({"1": [1]})
    staged = bench.stage("running", "1")
    result = bench.write(staged, {"1": [2]})
    held = staged.begin()

    def tidied_up_meanwhile() -> None:
        orphans(bench, held)

    bench.commit(staged, result, tidied_up_meanwhile)
    assert bench.rows() == {"1": [2]}
    assert [rows(bench, number) for number in (1, 2)] == [[1], [2]]


def test_a_restoration_that_begins_while_files_are_sorted_out_keeps_its_files(bench: Bench) -> None:
    """It has read the table before its version was forgotten, and is recorded after it was asked what is held."""
    for number in (1, 2, 3):
        bench.refresh({"1": [number]})
    told: list[str] = []

    def held() -> list[str]:
        if told:
            raise ConflictError("a version is being restored")
        told.append("nothing")
        return []

    def tidied_up_meanwhile() -> None:
        assert expire(bench, retention=Retention(1, DAY)) == 2
        with pytest.raises(ConflictError, match="is being restored"):
            bench.table.delete_orphans(soon(), held)

    restore(bench, 1, before=tidied_up_meanwhile)
    assert bench.rows() == {"1": [1]}


def test_what_is_pinned_is_asked_again_when_the_table_changed_meanwhile(bench: Bench) -> None:
    first = bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})
    bench.refresh({"1": [3]})
    asked: list[Version] = []

    def pinned() -> list[str]:
        asked.append(bench.refresh({"1": [4]}) if not asked else first)
        return [] if len(asked) == 1 else [first.token]

    assert bench.table.expire(TWO, soon(), pinned) == 0
    assert numbers(bench) == [1, 2, 3, 4]


def test_what_the_ledger_refuses_ends_the_deletion(bench: Bench, tmp_path: Path) -> None:
    bench.refresh({"1": [1]})
    bench.write(bench.stage("dead", "3"), {"3": [3]})
    before = sorted(tmp_path.rglob("*"))

    def refuse() -> list[str]:
        raise ConflictError("not now")

    with pytest.raises(ConflictError, match="not now"):
        bench.table.delete_orphans(soon(), refuse)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.needs("Iceberg's names of files")
def test_files_that_no_table_wrote_stay(bench: Bench, tmp_path: Path) -> None:
    bench.refresh({"1": [1]})
    location = next(tmp_path.rglob("metadata")).parent
    for name in ("README.md", "metadata/version-hint.text", "elsewhere/file.parquet"):
        (location / name).parent.mkdir(exist_ok=True)
        (location / name).write_text("mine")
    (location / "metadata" / "left.metadata.json").write_text("{}")
    assert orphans(bench)[0] == 1
    assert (location / "README.md").exists()
    assert (location / "metadata/version-hint.text").exists()
    assert (location / "elsewhere/file.parquet").exists()


def test_names_with_anything_in_them_lose_nothing(bench: Bench) -> None:
    bench.path = ObjectPath("Säle.1", 'Rev "x"/y %20')
    for number in range(4):
        bench.refresh({"a b/c=%": [number], "Grüße": [1]})
    assert expire(bench) == 2
    assert orphans(bench)[0] >= 4
    assert bench.rows() == {"Grüße": [1], "a b/c=%": [3]}


def test_a_table_that_does_not_exist_has_nothing_to_do(bench: Bench) -> None:
    assert (expire(bench), orphans(bench)) == (0, (0, 0))


@pytest.mark.sampled
def test_refreshes_beside_the_maintenance(bench: Bench) -> None:
    """Data files look old from the start, so that nothing but the order of its steps keeps the maintenance from them."""
    bench.refresh({"1": [0], "2": [0]})
    failures: list[BaseException] = []
    stages: dict[str, str] = {}
    rounds = 12

    def refresh() -> None:
        try:
            for number in range(1, rounds + 1):
                staged = bench.stage(f"t{number}", "1")
                stages[f"t{number}"] = staged.begin()  # the ledger's row
                result = bench.write(staged, {"1": [number]})
                for file in result.files:
                    os.utime(file.path.removeprefix("file://"), (0, 0))
                bench.commit(staged, result)
                del stages[f"t{number}"]
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=refresh)
    thread.start()
    while thread.is_alive():
        try:
            expire(bench, *list(stages))
        except ConflictError:
            continue
        bench.table.delete_orphans(datetime.now(UTC) - DAY, lambda: list(stages.values()))
    thread.join()
    assert not failures
    assert bench.rows() == {"1": [rounds], "2": [0]}
    expire(bench)
    orphans(bench)
    assert bench.rows() == {"1": [rounds], "2": [0]}


def test_a_refresh_of_partitions_does_not_land_after_the_table_went_back(bench: Bench) -> None:
    bench.refresh({"1": [1]}, at=NOON)
    later = bench.refresh({"2": [2]}, "2", at=NOON + DAY)
    planned = bench.stage("planned", "3")
    request = bench.request(bench.write(planned, {"3": [3]}), NOON + 2 * DAY)
    bench.stage("back").restore(1, lambda: None)
    with pytest.raises(CommitRejectedError, match="went back to an earlier version"):
        planned.commit(replace(request, base=Base(later.token, later.data_timestamp)), lambda: None)
    current = bench.table.current()
    assert current is not None
    assert (current.data_timestamp, bench.rows()) == (NOON, {"1": [1]})
