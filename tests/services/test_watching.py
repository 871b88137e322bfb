"""Shares of time in which tables are within freshness, as checks of each minute find them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.ledger.late_tables import LatePeriod
from airflow_dynamic_tables.services.status import TableStatus, overview
from airflow_dynamic_tables.services.tables.time_within_freshness import DAY, share_within_freshness
from airflow_dynamic_tables.services.watching import watch
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock

START = datetime(2024, 3, 1, tzinfo=UTC)
TABLE = TableIdentifier("lake", "sales", "t")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Bench:
    """A table with a freshness of one hour, refreshed at times, and its checks."""

    def __init__(self, folder: Path, workspace: Workspace, clock: Clock) -> None:
        (folder / "t.yaml").write_text("dynamic_tables:\n- {name: lake.sales.t, freshness: 1 hour, query: SELECT 1 AS x}\n")
        self._tables = load_definitions(folder / "t.yaml", cache=Cache(None)).tables
        self._workspace, self._clock = workspace, clock
        clock.time = START

    def refresh(self) -> None:
        """Record a refresh up to the latest full hour, which ends now."""
        now = self._clock.time
        tick = now.replace(minute=0)
        begun = Refresh(str(now), TABLE, RefreshAction.FULL, "", RefreshState.SUCCEEDED, tick, now)
        self._workspace.ledger.record(replace(begun, finished_at=now, data_timestamp=tick, version=1, snapshot="1"))

    def check(self) -> TableStatus:
        """Check the table once."""
        return watch(self._workspace, self._tables)[TABLE]

    def pass_time(self, time: timedelta, *, every: timedelta = 5 * MINUTE) -> TableStatus:
        """Check the table regularly."""
        for _ in range(time // every):
            self._clock.time += every
            found = self.check()
        return found

    def pause(self, time: timedelta) -> None:
        """Do not check the table."""
        self._clock.time += time


@pytest.fixture
def bench(tmp_path: Path, workspace: Workspace, clock: Clock) -> Bench:
    return Bench(tmp_path, workspace, clock)


def test_a_table_refreshed_in_time_was_always_within_freshness(bench: Bench) -> None:
    assert bench.check().share_of_day is None, "no time has passed"
    for _ in range(3):
        bench.refresh()
        found = bench.pass_time(HOUR)
    assert (found.share_of_day, found.share_of_week) == (1, 1)


def test_a_late_table(bench: Bench) -> None:
    bench.refresh()
    bench.check()
    # It may lie behind for two hours: up to the end of the refresh for the next tick. It is late for the third one.
    found = bench.pass_time(3 * HOUR)
    assert found.late
    assert found.share_of_day == found.share_of_week == pytest.approx(2 / 3)
    bench.refresh()
    for _ in range(5):
        found = bench.pass_time(HOUR)
        bench.refresh()
    assert not found.late
    # One of eight hours, and the minutes up to the check that saw the refresh.
    assert found.share_of_day == found.share_of_week == pytest.approx(7 / 8, abs=0.02)


def test_a_table_that_was_never_refreshed_becomes_late(bench: Bench) -> None:
    bench.check()
    assert bench.pass_time(4 * HOUR).share_of_day == pytest.approx(0.5)


class TestPauses:
    """A scheduler that was down, or a paused DAG."""

    def test_a_table_that_is_late_afterwards_was_late_since_its_limit(self, bench: Bench) -> None:
        bench.refresh()
        bench.check()
        bench.pause(10 * HOUR)
        assert bench.check().share_of_day == pytest.approx(0.2)

    def test_time_in_which_a_table_may_have_been_late_is_left_out(self, bench: Bench) -> None:
        bench.refresh()
        bench.check()
        bench.pause(10 * HOUR)
        bench.refresh()
        assert bench.check().share_of_day == 1
        bench.pass_time(3 * HOUR)
        # Two hours before the pause and two after it were within freshness, one was not.
        assert bench.check().share_of_day == pytest.approx(4 / 5)

    def test_a_pause_within_the_limit_changes_nothing(self, bench: Bench) -> None:
        bench.refresh()
        bench.check()
        bench.pause(1.5 * HOUR)
        bench.refresh()
        assert bench.pass_time(HOUR / 2).share_of_day == 1


def test_the_status_of_a_table_has_the_shares_of_the_time_up_to_the_last_check(
    bench: Bench, workspace: Workspace, clock: Clock
) -> None:
    def shares() -> list[float | None]:
        (status,) = overview(workspace, {TABLE: None}, {})
        return [status.share_of_day, status.share_of_week]

    assert shares() == [None, None]
    bench.refresh()
    bench.check()
    bench.pass_time(3 * HOUR)
    assert shares() == pytest.approx([2 / 3, 2 / 3])
    bench.pause(10 * HOUR)
    assert shares() == pytest.approx([2 / 3, 2 / 3]), "the pause is neither late nor within freshness"
    clock.time += timedelta(days=3)
    assert shares() == [None, pytest.approx(2 / 3)]


def test_a_clock_that_was_a_day_ahead_leaves_no_lateness(bench: Bench, clock: Clock) -> None:
    bench.refresh()
    bench.check()
    clock.time += timedelta(days=1)
    assert bench.check().share_of_day == pytest.approx(0, abs=0.1)
    clock.time -= timedelta(days=1)
    assert bench.pass_time(HOUR).share_of_day == 1


def test_periods_of_two_processes_that_overlap_count_once() -> None:
    now = START + DAY
    periods = [
        LatePeriod(START - HOUR, START + HOUR, is_certain=True),
        LatePeriod(START, START + 2 * HOUR, is_certain=True),
        LatePeriod(START + HOUR, START + 3 * HOUR, is_certain=False),
    ]
    assert share_within_freshness(periods, START, now, DAY) == pytest.approx(1 - 2 / 23)
    assert share_within_freshness(periods, START, now + 22 * HOUR, DAY) == 1, "they are before the window"
    assert share_within_freshness(periods, now, now, DAY) is None
