"""Forgetting beside refreshes: a table that nobody maintains does not grow for ever."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.tables import rollback as forgetting
from tests.support.benches.versions import NUMBERS, TOTAL, VersionBench

KEPT = 2
LATER = timedelta(days=20)


@pytest.fixture(autouse=True)
def _three_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "ENOUGH", 3)


def test_without_a_maintenance_refreshes_forget_old_versions(version_bench: VersionBench) -> None:
    version_bench.ahead = LATER
    most = 0
    for number in range(12):
        assert version_bench.refresh(number).number == number + 1
        most = max(most, len(version_bench.kept()))
    assert KEPT < most < KEPT + 3
    assert version_bench.numbers() == [11]
    assert version_bench.numbers(11) == [10]


def test_no_file_is_deleted_by_that(version_bench: VersionBench) -> None:
    version_bench.ahead = LATER
    for number in range(6):
        version_bench.refresh(number)
    assert len([file for file in version_bench.files() if file.name.endswith(".parquet")]) == 6


def test_a_version_that_a_running_refresh_reads_stays(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    child = version_bench.begin(TOTAL, "child")
    version_bench.ahead = LATER
    for number in range(2, 9):
        version_bench.refresh(number)
    assert version_bench.kept() == [*range(1, 9)]
    assert all(Path(file.removeprefix("file://")).exists() for file in child.plan.sources[0].files)


@pytest.mark.parametrize(("age", "is_kept"), [(timedelta(hours=20), True), (timedelta(hours=30), False)])
def test_what_a_stream_has_not_read_yet_stays_for_a_day(version_bench: VersionBench, age: timedelta, is_kept: bool) -> None:
    version_bench.refresh(1)
    read = version_bench.refresh(2)
    version_bench.ahead = LATER
    then = version_bench.workspace.now() - age
    streamed = Refresh(
        token="streamed",
        table=TOTAL,
        action=RefreshAction.ADD,
        reason="batch 7",
        reason_code=ReasonCode.STREAMED,
        state=RefreshState.SUCCEEDED,
        schedule_time=then,
        started_at=then,
        finished_at=then,
        partitions=WHOLE_TABLE,
        sources={str(NUMBERS): read.snapshot},
    )
    version_bench.workspace.ledger.record(streamed)
    for number in range(3, 9):
        version_bench.refresh(number)
    assert (2 in version_bench.kept()) is is_kept


def test_a_refresh_whose_old_versions_cannot_be_forgotten_is_green(
    version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> int:
        raise ConflictError("It was changed by others.")

    monkeypatch.setattr(IcebergTable, "expire", refused)
    assert version_bench.refresh(1).number == 1
    assert f"Old versions of {NUMBERS} could not be forgotten" in caplog.text
