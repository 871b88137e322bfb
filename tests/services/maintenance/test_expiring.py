"""The maintenance: old versions go by their retention, files that nothing needs are deleted, what is in use stays."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.exceptions import VersionNotFoundError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage, StageState
from airflow_dynamic_tables.services.maintenance.sweeping import expire, sweep
from airflow_dynamic_tables.services.refresh.running import commit
from airflow_dynamic_tables.services.writes.leases import current_process
from tests.support.benches.versions import NUMBERS, TOTAL, VersionBench
from tests.support.pyarrow_job import write_numbers

LATER = timedelta(days=20)


def exists(uri: str) -> bool:
    return Path(uri.removeprefix("file://")).exists()


def test_old_versions_go_and_the_report_counts_them(version_bench: VersionBench) -> None:
    for number in range(5):
        version_bench.refresh(number)
    report = sweep(version_bench.workspace)
    assert (report.expired, report.deleted_files, report.failed) == (0, 0, ())
    before = len(version_bench.files())
    version_bench.ahead = LATER
    report = sweep(version_bench.workspace)
    assert (report.expired, report.failed) == (3, ())
    assert report.deleted_files > 0
    assert report.deleted_bytes > 0
    assert len(version_bench.files()) <= before - report.deleted_files + 1, "the expiry itself writes one metadata file"
    assert version_bench.kept() == [4, 5]
    assert (version_bench.numbers(4), version_bench.numbers()) == ([3], [4])
    with pytest.raises(VersionNotFoundError, match="kept are: 4, 5"):
        version_bench.numbers(3)
    assert version_bench.refresh(6).number == 6


def test_versions_that_a_running_refresh_reads_stay(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    version_bench.refresh(2)
    child = version_bench.begin(TOTAL, "child")
    read = child.plan.sources[0]
    for number in (3, 4, 5):
        version_bench.refresh(number)
    version_bench.ahead = LATER
    assert sweep(version_bench.workspace).expired == 1
    assert version_bench.kept() == [2, 3, 4, 5]
    assert read.files
    assert all(map(exists, read.files))
    assert exists(child.plan.plan_location)
    write_numbers(child.plan, (2,))
    commit(version_bench.workspace, child)
    assert version_bench.numbers(table=TOTAL) == [2]
    assert sweep(version_bench.workspace).expired == 2
    assert version_bench.kept() == [4, 5]
    assert not any(map(exists, read.files))


@pytest.mark.parametrize("state", [StageState.OPEN, StageState.QUARANTINED])
def test_files_of_an_unfinished_stage_stay(version_bench: VersionBench, state: StageState) -> None:
    version_bench.refresh(1)
    running = version_bench.begin(NUMBERS, "running")
    write_numbers(running.plan, (2,))
    if state is not StageState.OPEN:
        version_bench.workspace.ledger.move_stage("running", (StageState.OPEN,), state)
    version_bench.ahead = LATER
    sweep(version_bench.workspace)
    assert exists(running.plan.result_location)
    assert exists(f"{running.plan.data_location}/part-0.parquet")


def test_a_commit_that_landed_unrecorded_is_found_however_old(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    running = version_bench.begin(NUMBERS, "unrecorded")
    write_numbers(running.plan, (2,))
    commit(version_bench.workspace, running)
    for number in (3, 4, 5):
        version_bench.refresh(number)
    version_bench.ahead = LATER
    version_bench.workspace.ledger.move_stage("unrecorded", (StageState.COMMITTED,), StageState.FENCING)
    assert expire(version_bench.workspace, NUMBERS).snapshots == 1
    report = sweep(version_bench.workspace)
    assert (report.completed, report.expired) == (("unrecorded",), 2)


def test_a_table_that_fails_stops_no_other(version_bench: VersionBench) -> None:
    for number in range(4):
        version_bench.refresh(number)
        version_bench.refresh(number, table=TOTAL)
    (numbers,) = version_bench.folder.glob("warehouse/lake/sales/numbers-*")
    shutil.rmtree(numbers / "metadata")
    version_bench.ahead = LATER
    report = sweep(version_bench.workspace)
    assert (report.failed, report.expired) == ((str(NUMBERS),), 2)
    assert version_bench.kept(TOTAL) == [3, 4]


def test_a_table_that_was_dropped_is_left_alone(version_bench: VersionBench) -> None:
    for number in range(4):
        version_bench.refresh(number)
    version_bench.workspace.catalog("lake").drop_table(NUMBERS.path)
    before = version_bench.files()
    version_bench.ahead = LATER
    assert sweep(version_bench.workspace).failed == ()
    assert version_bench.files() == before


def once_listed(action: Callable[[], object]) -> None:
    """Act once, right after the maintenance has listed the files of a table; a hook cannot be removed."""
    waiting = [action]

    def hook(event: str, arguments: tuple[object, ...]) -> None:  # noqa: ARG001 - Python's signature
        if event == "airflow_dynamic_tables.listed" and waiting:
            waiting.pop()()

    sys.addaudithook(hook)


def test_a_commit_that_lands_while_files_are_sorted_out_keeps_them(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    running = version_bench.begin(NUMBERS, "running")
    write_numbers(running.plan, (2,))
    version_bench.ahead = LATER
    once_listed(lambda: commit(version_bench.workspace, running))
    assert sweep(version_bench.workspace).failed == ()
    assert (version_bench.numbers(), version_bench.numbers(1)) == ([2], [1])


def test_nothing_is_deleted_while_a_version_is_being_restored(version_bench: VersionBench) -> None:
    """The rollback has read the table before its version expired, and publishes after the files were listed."""
    for number in range(4):
        version_bench.refresh(number)
    table = version_bench.workspace.existing_table(NUMBERS)
    now = version_bench.workspace.now()
    stage = Stage("back", NUMBERS, "file:///stage", "me", current_process(), now, now + 2 * LATER)
    refresh = Refresh("back", NUMBERS, RefreshAction.ROLLBACK, "a test", RefreshState.RUNNING, now, now)

    def begins() -> None:
        version_bench.workspace.ledger.open_stage(stage)
        version_bench.workspace.ledger.record(refresh)

    def sweeps_meanwhile() -> None:
        version_bench.ahead = LATER
        once_listed(begins)
        report = sweep(version_bench.workspace)
        assert (report.expired, report.deleted_files, report.failed) == (2, 0, ())

    assert table.stage("back").restore(1, sweeps_meanwhile).number == 5
    assert version_bench.numbers() == [0]


def test_pinned_by_a_rollback(version_bench: VersionBench) -> None:
    for number in range(4):
        version_bench.refresh(number)
    begun = threading.Event()
    swept = threading.Event()

    def waits(event: str, arguments: tuple[object, ...]) -> None:
        if event == "airflow_dynamic_tables.restoring" and arguments == ("back",):
            begun.set()
            swept.wait(60)

    sys.addaudithook(waits)
    thread = threading.Thread(target=version_bench.rollback, args=(2, "back"))
    thread.start()
    assert begun.wait(60)
    version_bench.workspace.ledger.renew_lease("back", version_bench.workspace.now() + 2 * LATER)
    version_bench.ahead = LATER
    report = sweep(version_bench.workspace)
    swept.set()
    thread.join()
    assert (report.expired, report.deleted_files) == (1, 0)
    assert version_bench.numbers() == [1]
