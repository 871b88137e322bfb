"""Compaction by the maintenance: no version and no refresh, and whoever works on the table has his way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.exceptions import CommitUnknownError, UnsupportedError
from airflow_dynamic_tables.formats.iceberg.stage import IcebergStagedTable
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS, Compacted
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.maintenance.compacting import compact, count_files
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.writes.owner_markers import MARKS
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.pyarrow_job import write_scattered

MANY = DEFAULT_LIMITS.many + 1
ALL = list(range(MANY))


def scatter(bench: VersionBench) -> None:
    run(bench.workspace, bench.request(), lambda plan: write_scattered(plan, ALL))


def files(bench: VersionBench) -> int:
    return len(bench.workspace.existing_table(NUMBERS).read().files)


def left(done: Compacted) -> tuple[str, ...]:
    assert (done.files, done.made, done.bytes) == (0, 0, 0)
    return done.left


def stages(bench: VersionBench) -> list[StageState]:
    known = bench.workspace.ledger.list_stages(NUMBERS, tuple(StageState))
    return [stage.state for stage in known if stage.token.startswith("compaction-")]


def before_merging(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Something happens while a compaction has its stage, and nothing written."""
    at_work = IcebergStagedTable.compact

    def compact_after(*arguments: object) -> Compacted | None:
        monkeypatch.undo()
        action()
        return at_work(*arguments)  # type: ignore[arg-type]  # those that it was called with

    monkeypatch.setattr(IcebergStagedTable, "compact", compact_after)


def test_the_sweep_makes_few_files_of_many(version_bench: VersionBench) -> None:
    scatter(version_bench)
    history = version_bench.workspace.ledger.list_refreshes(NUMBERS)
    versions = version_bench.workspace.existing_table(NUMBERS).versions()
    report = sweep(version_bench.workspace)
    assert (report.compacted_files, report.failed) == (MANY, ())
    assert (files(version_bench), sorted(version_bench.numbers())) == (1, ALL)
    assert version_bench.workspace.existing_table(NUMBERS).versions() == versions
    assert version_bench.workspace.ledger.list_refreshes(NUMBERS) == history, "nobody hears of it"
    assert stages(version_bench) == [StageState.COMMITTED]
    assert sweep(version_bench.workspace).compacted_files == 0
    assert version_bench.refresh(1).number == 2


def test_the_small_files_go_with_their_version(version_bench: VersionBench) -> None:
    scatter(version_bench)
    sweep(version_bench.workspace)
    data = [file for file in version_bench.files() if file.suffix == ".parquet"]
    assert len(data) == MANY + 1
    version_bench.refresh(1)
    assert sorted(version_bench.numbers(1)) == ALL
    version_bench.rollback(1)
    assert sorted(version_bench.numbers()) == ALL
    for number in (2, 3):
        version_bench.refresh(number)
    version_bench.ahead = timedelta(days=20)
    assert sweep(version_bench.workspace).failed == ()
    assert version_bench.kept() == [4, 5]
    assert len([file for file in version_bench.files() if file.suffix == ".parquet"]) == 2


def test_what_is_being_refreshed_is_left_alone(version_bench: VersionBench) -> None:
    scatter(version_bench)
    version_bench.begin(NUMBERS, "running")
    (why,) = left(compact(version_bench.workspace, NUMBERS))
    assert "is being refreshed; its compaction waits until next time" in why
    assert (files(version_bench), stages(version_bench)) == (MANY, [])
    stage = version_bench.workspace.ledger.get_stage("running")
    assert stage.state is StageState.OPEN


def test_a_refresh_that_comes_meanwhile_takes_the_stage_away(
    version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scatter(version_bench)
    before_merging(monkeypatch, lambda: version_bench.refresh(1, 2))
    (why,) = left(compact(version_bench.workspace, NUMBERS))
    assert "has no small files (any more) that are alike" in why
    assert sorted(version_bench.numbers()) == [1, 2]
    assert stages(version_bench) == [StageState.ABORTED]
    sweep(version_bench.workspace)
    assert not [file for file in version_bench.files() if "compaction-" in str(file)]


def test_so_does_a_rollback(version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch) -> None:
    version_bench.refresh(7)
    scatter(version_bench)
    before_merging(monkeypatch, lambda: version_bench.rollback(1))
    assert left(compact(version_bench.workspace, NUMBERS))
    assert (version_bench.numbers(), stages(version_bench)) == ([7], [StageState.ABORTED])


def test_what_is_in_quarantine_stays_for_who_decides(version_bench: VersionBench) -> None:
    scatter(version_bench)
    version_bench.begin(NUMBERS, "doubted")
    version_bench.workspace.ledger.move_stage("doubted", (StageState.OPEN,), StageState.QUARANTINED)
    assert compact(version_bench.workspace, NUMBERS).files == MANY
    assert sweep(version_bench.workspace).aborted == ()
    doubted = version_bench.workspace.ledger.get_stage("doubted")
    assert doubted.state is StageState.QUARANTINED


def test_a_table_that_was_dropped_meanwhile_stays_dropped(version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch) -> None:
    scatter(version_bench)
    before_merging(monkeypatch, lambda: version_bench.workspace.catalog("lake").drop_table(NUMBERS.path))
    assert left(compact(version_bench.workspace, NUMBERS))
    assert compact(version_bench.workspace, NUMBERS) == Compacted()
    assert version_bench.workspace.existing_table(NUMBERS).current() is None


def test_a_table_of_two_installations_is_left_alone(version_bench: VersionBench) -> None:
    scatter(version_bench)
    folder = version_bench.workspace.existing_table(NUMBERS).folder()
    write_text(f"{folder}/{MARKS}/somebody-else", "")
    (why,) = left(compact(version_bench.workspace, NUMBERS))
    assert "is refreshed by another installation, too" in why
    with pytest.raises(UnsupportedError, match=r"is not compacted. .* is refreshed by another installation, too"):
        count_files(version_bench.workspace, NUMBERS)
    assert files(version_bench) == MANY


def test_a_lost_file_stops_nothing_else(version_bench: VersionBench) -> None:
    scatter(version_bench)
    Path(version_bench.workspace.existing_table(NUMBERS).read().files[0].removeprefix("file://")).unlink()
    assert left(compact(version_bench.workspace, NUMBERS))
    assert stages(version_bench) == [StageState.ABORTED]
    assert sweep(version_bench.workspace).failed == ()


def test_after_a_lost_answer_the_next_sweep_finds_out(version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch) -> None:
    scatter(version_bench)
    at_work = IcebergStagedTable.compact

    def lose_the_answer(*arguments: object) -> None:
        at_work(*arguments)  # type: ignore[arg-type]  # those that it was called with
        raise CommitUnknownError("the line is dead")

    with monkeypatch.context() as patched:
        patched.setattr(IcebergStagedTable, "compact", lose_the_answer)
        with pytest.raises(CommitUnknownError):
            compact(version_bench.workspace, NUMBERS)
    assert stages(version_bench) == [StageState.COMMITTING]
    version_bench.ahead = timedelta(hours=1)
    (token,) = sweep(version_bench.workspace).completed
    assert (token.startswith("compaction-"), stages(version_bench)) == (True, [StageState.COMMITTED])
    assert (files(version_bench), sorted(version_bench.numbers())) == (1, ALL)
    request = replace(version_bench.request(), token=str(uuid4()))
    assert run(version_bench.workspace, request, lambda plan: write_scattered(plan, ALL)) is not None
