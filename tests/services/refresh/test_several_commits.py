"""Refreshes in several commits: ``max_partitions_per_commit``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import ExpectationError, JobFailedError, QuarantinedError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.outcomes import collecting
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support.clock import Clock
from tests.support.daily_facts import (
    DAY,
    DAYS,
    MARCH,
    WITH_FACTOR,
    Bench,
    check_random_changes,
    fail,
    only,
    opened_bench,
    refresh_by_hand,
)


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        bench.settings = "refresh_mode: incremental\n  max_partitions_per_commit: 3"
        bench.all_days = True
        for day in range(4, 8):
            bench.write(day, day)
        yield bench


def made(bench: Bench) -> list[PartitionSet]:
    """The partitions of each job since the last call."""
    found = [plan.partitions for plan in bench.plans]
    bench.plans.clear()
    return found


def history(bench: Bench, number: int) -> list[Refresh]:
    """The latest refreshes, in the order of their commits."""
    return sorted(bench.workspace.ledger.list_refreshes(DAYS, number), key=lambda one: one.reason.partition("; commit ")[2])


def fresh(bench: Bench) -> datetime | None:
    return fresh_until(bench.workspace, bench.workspace.table(DAYS, bench.format).current())


class Failing:
    """A job that fails before one of its plans."""

    def __init__(self, bench: Bench, number: int) -> None:
        self._submit, self._left = bench.submit, number

    def __call__(self, plan: RefreshPlan) -> None:
        self._left -= 1
        if not self._left:
            raise JobFailedError("no")
        self._submit(plan)


def fail_at(bench: Bench, number: int, tick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh, with a job that fails for the commit of that number."""
    with monkeypatch.context() as patch:
        patch.setattr(bench, "submit", Failing(bench, number))
        with pytest.raises(JobFailedError):
            bench.refresh(tick)


def test_the_first_refresh_makes_several_commits_oldest_first(bench: Bench) -> None:
    commits: list[Version] = []
    request = bench.request()
    bench.workspace = bench.workspace.with_listener(collecting(commits))
    bench.refresh(8)
    assert made(bench) == [only(0, 1, 2), only(3, 4, 5), only(6, 7)]
    assert bench.rows() == bench.expected()
    assert [version.number for version in commits] == [1, 2, 3]
    refreshes = history(bench, 3)
    assert [each.action for each in refreshes] == [RefreshAction.INITIALIZE, *[RefreshAction.PARTITIONS] * 2]
    assert [each.data_timestamp for each in refreshes] == [None, None, MARCH + 8 * DAY]
    assert [each.reason.split("; ")[1] for each in refreshes] == [f"commit {number} of 3" for number in (1, 2, 3)]
    assert request.table.max_partitions_per_commit == 3
    assert isinstance(bench.refresh(9), Skipped)


def test_what_a_failure_left_is_made_by_the_next_refresh(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(bench, 3, 8, monkeypatch)
    assert made(bench) == [only(0, 1, 2), only(3, 4, 5)]
    failed = history(bench, 3)[-1]
    assert (failed.state, "commit 3 of 3" in failed.reason) == (RefreshState.FAILED, True)
    assert fresh(bench) is None, "the table is not complete"
    bench.write(1, 10)
    bench.refresh(8)
    assert made(bench) == [only(1, 6, 7)]
    assert bench.rows() == bench.expected()
    assert fresh(bench) == MARCH + 8 * DAY
    assert isinstance(bench.refresh(9), Skipped)


def test_changed_partitions_are_divided(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.refresh(8)
    for day in (7, 5, 3, 1, -20):
        bench.write(day, day)
    made(bench)
    foretold = bench.live(9)
    assert foretold.replaced == only(-20, 1, 3, 5, 7)
    assert "commit 1 of 2" in foretold.reason
    fail_at(bench, 2, 9, monkeypatch)
    assert made(bench) == [only(-20, 1, 3)]
    assert fresh(bench) == MARCH + 8 * DAY
    bench.refresh(9)
    assert made(bench) == [only(5, 7)]
    assert bench.rows() == bench.expected()
    assert history(bench, 1)[0].reason_code is ReasonCode.SOURCES_CHANGED


def test_a_changed_dimension_replaces_partition_by_partition(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.query = WITH_FACTOR
    bench.refresh(8)
    bench.write_factor(2)
    made(bench)
    fail_at(bench, 2, 9, monkeypatch)
    bench.refresh(9)
    assert made(bench) == [only(0, 1, 2), only(3, 4, 5), only(6, 7)]
    assert bench.rows() == bench.expected()
    bench.write(4, 40)
    bench.refresh(10)
    assert made(bench) == [only(4)]
    assert isinstance(bench.refresh(11), Skipped)


@pytest.mark.large
def test_another_definition_replaces_partition_by_partition(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.refresh(8)
    bench.query = WITH_FACTOR
    bench.write_factor(3)
    made(bench)
    fail_at(bench, 3, 9, monkeypatch)
    bench.refresh(9)
    assert made(bench) == [only(0, 1, 2), only(3, 4, 5), only(6, 7)]
    assert bench.rows() == bench.expected()
    assert isinstance(bench.refresh(10), Skipped)


def test_all_commits_read_the_same_sources(bench: Bench) -> None:
    before = bench.expected()

    def change(plan: RefreshPlan) -> None:
        bench.submit(plan)
        bench.write(1, 100 * len(bench.plans))
        bench.write(7, 100 * len(bench.plans))
        bench.write(20 + len(bench.plans), 1)

    bench.tick = 8
    bench.clock.time = MARCH + 8 * DAY
    run(bench.workspace, bench.request(), change)
    assert bench.rows() == before
    bench.refresh(9)
    assert made(bench)[3:] == [only(1, 7, 21), only(22, 23)]
    assert bench.rows() == bench.expected()


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.large), 2])
def test_a_commit_of_others_in_between_is_noticed(bench: Bench, number: int) -> None:
    """Their partition was made of newer rows, which this refresh does not replace by older ones."""

    def submit(plan: RefreshPlan) -> None:
        bench.submit(plan)
        if len(bench.plans) == number:
            bench.write(6, 60)
            bench.refresh(8, is_scheduled=False, partitions=only(6))

    bench.tick = 8
    bench.clock.time = MARCH + 8 * DAY
    run(bench.workspace, bench.request(), submit)
    # The first commit of all forgets partitions that others made meanwhile.
    rest = [only(6), only(3, 4, 5), only(6, 7)] if number == 1 else [only(3, 4, 5), only(6), only(7)]
    assert made(bench) == [only(0, 1, 2), *rest]
    assert bench.rows() == bench.expected()
    assert isinstance(bench.refresh(9), Skipped)


def test_partitions_by_hand_are_divided_and_move_no_time(bench: Bench) -> None:
    bench.refresh(8)
    made(bench)
    bench.refresh(9, is_scheduled=False, partitions=only(0, 1, 2, 3))
    assert made(bench) == [only(0, 1, 2), only(3)]
    assert fresh(bench) == MARCH + 8 * DAY
    for day in range(5):
        bench.write(day, day)
    bench.refresh(9, is_scheduled=False, only_dirty=True)
    assert made(bench) == [only(0, 1, 2), only(3, 4)]
    assert fresh(bench) == MARCH + 8 * DAY
    bench.refresh(9, is_scheduled=False, full_refresh=True)
    assert made(bench)[0].is_whole, "a full refresh is one commit"


@pytest.mark.parametrize("action", [pytest.param("fail", marks=pytest.mark.large), "quarantine"])
def test_a_violated_expectation_ends_the_refresh(bench: Bench, action: str) -> None:
    bench.settings += f"\n  expectations: [{{row_count: {{max: 3}}, action: {action}}}]"
    bench.write(4, 40)
    with pytest.raises(ExpectationError if action == "fail" else QuarantinedError):
        bench.refresh(8)
    assert made(bench) == [only(0, 1, 2), only(3, 4, 5)]
    assert sorted(bench.rows()) == sorted(day for day in bench.expected() if day < "2024-03-04")
    stopped = history(bench, 2)[-1]
    assert "commit 2 of 3" in stopped.reason
    if action == "quarantine":
        publish(bench.workspace, stopped.token)
        assert len(bench.rows()) == 6
        assert fresh(bench) is None, "the partitions of the third commit are missing"


@pytest.mark.large
def test_a_rollback_to_the_middle_is_made_up_for(bench: Bench) -> None:
    bench.refresh(8)
    made(bench)
    rollback(bench.workspace, RollbackRequest(DAYS, 2, "back", "me"))
    assert len(bench.rows()) == 6
    bench.refresh(9)
    assert made(bench) == [only(6, 7)]
    assert bench.rows() == bench.expected()


@pytest.mark.large
def test_few_partitions_are_one_commit(bench: Bench) -> None:
    bench.settings = bench.settings.replace("3", "8")
    bench.query = WITH_FACTOR
    bench.refresh(8)
    bench.write_factor(2)
    bench.refresh(9)
    first, second = made(bench)
    assert (first.is_whole, second.is_whole) == (True, True)


@pytest.mark.large
def test_the_first_refresh_of_a_strict_table_is_one_commit(bench: Bench) -> None:
    bench.settings = bench.settings.replace("incremental", "incremental_strict")
    bench.refresh(8)
    for day in range(4):
        bench.write(day, day)
    bench.refresh(9)
    first, *others = made(bench)
    assert (first.is_whole, others) == (True, [only(0, 1, 2), only(3)])
    assert bench.rows() == bench.expected()


def test_partitions_that_nobody_can_list_are_replaced_at_once(bench: Bench) -> None:
    bench.refresh(8)
    unnamed = bench.folder / "facts" / "ds=__HIVE_DEFAULT_PARTITION__" / "5.csv"
    unnamed.parent.mkdir()
    unnamed.write_text("5\n")
    made(bench)
    bench.query = "SELECT ds, n FROM raw.facts WHERE ds IS NOT NULL"
    bench.refresh(9)
    (only_one,) = made(bench)
    assert only_one.is_whole
    assert "its partitions cannot be listed, so there is one commit" in history(bench, 1)[0].reason


@pytest.mark.large
@pytest.mark.parametrize("seed", range(1, 8))
def test_random_changes(bench: Bench, seed: int) -> None:
    chance = Random(seed)
    bench.query = WITH_FACTOR if seed % 2 else bench.query
    check_random_changes(bench, chance, 30, [fail, refresh_by_hand])
