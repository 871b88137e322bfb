"""Suspended tables are refreshed by nobody; what they have stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_dynamic_tables.catalog.values import Asked, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.services.lifecycle import registration
from airflow_dynamic_tables.services.lifecycle.registration import Registration, ensure
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import begin
from tests.support.benches.versions import MARCH, NUMBERS, VersionBench


def test_a_suspended_table_is_not_refreshed_until_it_is_resumed(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.refresh(1, 2)
    assert [suspend(workspace, NUMBERS).before for _ in range(2)] == [JobState.RUNNING, JobState.SUSPENDED]
    skipped = begin(workspace, version_bench.request(NUMBERS, "t"))
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.SUSPENDED
    assert version_bench.numbers() == [1, 2]

    assert [resume(workspace, NUMBERS).before for _ in range(2)] == [JobState.SUSPENDED, JobState.RUNNING]
    version_bench.refresh(3, at=MARCH + timedelta(days=1))
    assert version_bench.numbers() == [3]


def test_a_table_that_was_suspended_before_its_first_refresh_still_waits_for_it(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    ensure(workspace, version_bench.definitions.tables[NUMBERS])
    suspend(workspace, NUMBERS)
    resume(workspace, NUMBERS)
    assert workspace.dynamic_table(NUMBERS).refresh_handler.job_state is JobState.INITIALIZING


def test_a_changed_definition_takes_no_suspend_back_that_came_meanwhile(
    version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = version_bench.workspace
    table = version_bench.definitions.tables[NUMBERS]
    ensure(workspace, table, Asked.FORCED_REFRESH)

    def suspended_between(*_: object) -> None:
        suspend(workspace, NUMBERS)

    monkeypatch.setattr(registration, "check_format", suspended_between)
    assert ensure(workspace, replace(table, comment="new"), Asked.FORCED_REFRESH)[1] is Registration.ALTERED
    entry = workspace.catalog("lake").get_table(NUMBERS.path)
    assert (entry.comment, workspace.dynamic_table(NUMBERS).refresh_handler.job_state) == ("new", JobState.SUSPENDED)


def test_only_a_dynamic_table_can_be_suspended(version_bench: VersionBench) -> None:
    for change in (suspend, resume):
        with pytest.raises(TableNotFoundError):
            change(version_bench.workspace, TableIdentifier("lake", "sales", "nobody"))


def test_the_reason_is_told_until_the_table_is_resumed(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.refresh(1, 2)
    assert suspend(workspace, NUMBERS, "the source moves").reason == "the source moves"
    assert suspend(workspace, NUMBERS).reason == "the source moves", "who says nothing takes nothing back"
    assert "hunter2" not in suspend(workspace, NUMBERS, "no postgresql://ada:hunter2@db/sales").reason
    suspend(workspace, NUMBERS, "the source moves")
    ensure(workspace, replace(version_bench.definitions.tables[NUMBERS], comment="new"))
    skipped = begin(workspace, version_bench.request(NUMBERS, "t"))
    assert isinstance(skipped, Skipped)
    assert "is suspended (the source moves); resume it" in str(skipped.reason)
    assert resume(workspace, NUMBERS).reason == ""
    assert suspend(workspace, NUMBERS).reason == ""


def test_by_hand_a_suspended_table_is_refreshed_with_force_and_stays_suspended(version_bench: VersionBench) -> None:
    version_bench.refresh(1, 2)
    suspend(version_bench.workspace, NUMBERS, "the source moves")
    version_bench.refresh(3, at=MARCH + timedelta(days=1), force=True)
    assert version_bench.numbers() == [3]
    assert isinstance(begin(version_bench.workspace, version_bench.request(NUMBERS, "t")), Skipped)
