"""Scheduled refreshes that fail in a row suspend their table: each run once, and a success begins anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, note_failure, resume, suspend
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.workspace import why_suspended
from tests.support.benches.versions import MARCH, NUMBERS, VersionBench


@pytest.fixture
def fail(version_bench: VersionBench) -> Callable[..., bool]:
    table = version_bench.definitions.tables[NUMBERS]

    def note(run: object, most: int | None = None, counts: bool = True) -> bool:
        limited = replace(table, suspend_after_failures=most)
        return note_failure(version_bench.workspace, limited, str(run), f"no\nspace {run}", counts=counts) is not None

    return note


def test_five_in_a_row_suspend_the_table_and_say_why(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    version_bench.refresh(1)
    assert [fail(run) for run in range(6)] == [False] * 4 + [True, False]
    reason = why_suspended(NUMBERS, version_bench.workspace.find_entry(NUMBERS))
    assert "(5 scheduled refreshes failed in a row, the last one with: no space 4)" in str(reason)


def test_a_run_counts_once_and_a_success_begins_anew(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    assert not any(fail(1, most=2) for _ in range(5)), "however often it is told"
    version_bench.refresh(1)
    assert not fail(1, most=2), "not even after the success that came between"
    assert not fail(2, most=2)
    version_bench.refresh(2, at=MARCH + timedelta(days=1))
    assert not fail(3, most=2)
    assert fail(4, most=2)


def test_the_number_can_be_set_and_zero_means_never(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    version_bench.refresh(1)
    assert not any(fail(run, most=0) for run in range(50))
    assert fail(50, most=1)


def test_a_resumed_table_has_all_its_tries_again(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    assert [fail(run, most=2) for run in range(2)] == [False, True], "though it never had a version"
    resume(version_bench.workspace, NUMBERS)
    assert [fail(run, most=2) for run in range(2, 4)] == [False, True]


def test_skipped_runs_and_rollbacks_neither_count_nor_reset(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    version_bench.refresh(1)
    version_bench.refresh(2, at=MARCH + timedelta(days=1))
    fail(1, most=2)
    begin(version_bench.workspace, replace(version_bench.request(NUMBERS), schedule_time=MARCH - timedelta(days=1)))
    version_bench.rollback(1)
    assert fail(2, most=2)


def test_a_failure_that_is_told_after_a_later_success_does_not_count(
    version_bench: VersionBench, fail: Callable[..., bool]
) -> None:
    workspace = version_bench.workspace

    def lost(_: object) -> None:
        raise JobFailedError("lost")

    with pytest.raises(JobFailedError):
        run(workspace, version_bench.request(NUMBERS, "late"), lost)
    version_bench.refresh(1)
    assert not fail("late", most=1)
    with pytest.raises(JobFailedError):
        run(workspace, version_bench.request(NUMBERS, "later"), lost)
    assert fail("later", most=1)


def test_a_success_that_comes_meanwhile_wins(
    version_bench: VersionBench, fail: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    version_bench.refresh(1)

    def slow(*arguments: Any) -> StateChange:
        version_bench.refresh(2, at=MARCH + timedelta(days=1))
        return suspend(*arguments)

    monkeypatch.setattr("airflow_dynamic_tables.services.lifecycle.suspending.suspend", slow)
    assert not fail(1, most=1)
    assert version_bench.workspace.dynamic_table(NUMBERS).refresh_handler.job_state is JobState.RUNNING


def test_who_suspended_a_table_first_keeps_the_reason(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    version_bench.refresh(1)
    suspend(version_bench.workspace, NUMBERS, "on holiday")
    assert not fail(1, most=1)
    assert "on holiday" in str(why_suspended(NUMBERS, version_bench.workspace.find_entry(NUMBERS)))


def test_old_failures_are_pruned_but_not_what_counts(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    ledger = version_bench.workspace.ledger
    fail(1)
    ledger.prune(version_bench.workspace.now() + timedelta(days=1))
    assert ledger.failures_in_a_row(NUMBERS) == 1
    ledger.forget_failures(NUMBERS)
    ledger.prune(version_bench.workspace.now() + timedelta(days=1))
    fail(1)
    assert ledger.failures_in_a_row(NUMBERS) == 1, "it is forgotten"


def test_what_the_table_is_not_to_blame_for_never_counts(version_bench: VersionBench, fail: Callable[..., bool]) -> None:
    version_bench.refresh(1)
    assert not fail(1, most=1, counts=False)
    assert not fail(1, most=1), "whoever looks later knows no better"
    assert fail(2, most=1)
