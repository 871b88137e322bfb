"""Plans of what is due now: they say what the next refresh does, and change nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.services.refresh.requests import Skipped
from tests.support.clock import Clock
from tests.support.daily_facts import DAYS, WITH_FACTOR, Bench, name_of, only, opened_bench


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        yield bench


@pytest.fixture(params=["late: refresh", "refresh_mode: incremental"])
def settled(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    bench.settings = request.param
    bench.refresh(4)
    return bench


def test_a_table_that_was_never_refreshed(bench: Bench) -> None:
    plan = bench.live(4)
    assert (plan.action, plan.reason_code, plan.replaced.is_whole) == (RefreshAction.INITIALIZE, ReasonCode.SCHEDULED, True)
    assert plan.expected_seconds is None
    assert bench.workspace.find_entry(DAYS) is None


def test_nothing_is_due(settled: Bench) -> None:
    settled.refresh(5)
    plan = settled.live(6)
    assert (plan.action, plan.reason_code, plan.replaced.is_empty) == (RefreshAction.NO_DATA, ReasonCode.UNCHANGED, True)


def test_changed_partitions(settled: Bench) -> None:
    settled.refresh(5)
    settled.write(1, 10)
    settled.write(5, 50)
    before = settled.workspace.ledger.list_refreshes(DAYS)
    plan = settled.live(6)
    assert set(map(describe, plan.replaced)) == set(map(describe, only(1, 5)))
    assert plan.action is RefreshAction.PARTITIONS
    assert "lake.raw.facts moved" in plan.reason
    assert settled.workspace.ledger.list_refreshes(DAYS) == before
    settled.refresh(6)
    assert settled.made == plan.replaced
    settled.write(2, 20)
    assert settled.live(7).expected_seconds is not None


def test_late_partitions_that_are_only_reported(bench: Bench) -> None:
    bench.settings = "late: report"
    bench.refresh(5)
    bench.write(1, 10)
    plan = bench.live(6)
    assert (plan.action, plan.replaced.is_empty, plan.left_dirty) == (RefreshAction.NO_DATA, True, only(1))


def test_a_change_that_cannot_be_mapped(bench: Bench) -> None:
    bench.settings, bench.query = "refresh_mode: incremental", WITH_FACTOR
    bench.refresh(4)
    bench.write_factor(3)
    plan = bench.live(5)
    assert (plan.action, plan.reason_code) == (RefreshAction.FULL, ReasonCode.NOT_INCREMENTAL)
    assert "lake.raw.factor moved" in plan.reason


def test_a_refresh_that_would_be_refused(bench: Bench) -> None:
    bench.settings = "refresh_mode: incremental_strict"
    bench.refresh(4)
    bench.query = "SELECT ds, n + 1 AS n FROM raw.facts"
    plan = bench.live(5)
    assert (plan.action, plan.reason_code) == (None, None)
    assert "cannot be refreshed by partition: its definition changed" in plan.reason


def test_sources_that_cannot_be_read(bench: Bench) -> None:
    bench.settings = "refresh_mode: incremental"
    bench.refresh(4)
    shutil.rmtree(bench.folder / "facts")
    assert "it is not known which sources changed: Source lake.raw.facts: there is nothing at" in bench.live(5).reason


def test_an_earlier_time(bench: Bench) -> None:
    bench.settings = "refresh_mode: incremental"
    bench.refresh(5)
    plan = bench.live(4)
    assert (plan.action, plan.reason_code) == (RefreshAction.SKIP, ReasonCode.ALREADY_FRESH)
    assert isinstance(bench.refresh(4), Skipped)


def test_a_late_partition_is_named(bench: Bench) -> None:
    bench.settings = ""
    bench.refresh(4)
    bench.refresh(5)
    bench.write(1, 10)
    plan = bench.live(6)
    assert plan.action is RefreshAction.NO_DATA
    assert f"ds={name_of(1)} may be out of date" in plan.reason
