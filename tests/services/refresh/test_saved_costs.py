"""Saved cost: what refreshes took beside the last complete one, and beside really doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.saved_costs import SavedCost, compared_refreshes, saved_costs
from airflow_dynamic_tables.services.tables.source_reads import pace_of
from tests.support.clock import Clock
from tests.support.daily_facts import Bench, opened_bench

T = TableIdentifier("lake", "sales", "t")
U = TableIdentifier("lake", "sales", "u")
DAY_1 = PartitionSet.of([{"ds": "1"}])


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        bench.settings = "refresh_mode: incremental"
        bench.all_days = True
        yield bench


def refresh(number: int, action: RefreshAction, seconds: float, written: int, **changes: object) -> Refresh:
    """One refresh per ten days, from 2024-01-01 on."""
    time = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=10 * number)
    made = Refresh(str(number), T, action, "", RefreshState.SUCCEEDED, time, time, time, recipe="a", bytes=written)
    is_part = action in (RefreshAction.PARTITIONS, RefreshAction.MERGE)
    made = replace(made, seconds={"spark": seconds, "spark.read": 5.0}, partitions=DAY_1 if is_part else made.partitions)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_sums_by_table_and_month() -> None:
    history = [
        refresh(0, RefreshAction.INITIALIZE, 100.0, 1_000),
        refresh(1, RefreshAction.PARTITIONS, 10.0, 50),
        refresh(2, RefreshAction.PARTITIONS, 80.0, 900, state=RefreshState.FAILED),
        refresh(4, RefreshAction.NO_DATA, 0.0, 0, recipe=None, bytes=None, state=RefreshState.SKIPPED, occurrences=3),
        refresh(4, RefreshAction.SKIP, 0.0, 0, token="skip", state=RefreshState.SKIPPED),
        refresh(5, RefreshAction.MERGE, 20.0, 100),
        refresh(6, RefreshAction.PARTITIONS, 20.0, 100, table=U),
    ]
    assert saved_costs(history) == [
        SavedCost(U, "2024-03", 1, 0, 1, None, None, None, None, None, None),
        SavedCost(T, "2024-02", 4, 3, 0, 20.0, 400.0, 380.0, 100, 4_000, 3_900),
        SavedCost(T, "2024-01", 2, 0, 0, 110.0, 200.0, 90.0, 1_050, 2_000, 950),
    ]


def test_another_definition_is_compared_with_its_own_complete_refresh() -> None:
    history = [
        refresh(0, RefreshAction.FULL, 100.0, 1_000),
        refresh(1, RefreshAction.PARTITIONS, 10.0, 50, recipe="b"),
        refresh(2, RefreshAction.NO_DATA, 0.0, 0, recipe=None, bytes=None, state=RefreshState.SKIPPED),
        refresh(3, RefreshAction.FULL, 200.0, 3_000, recipe="b"),
        refresh(4, RefreshAction.PARTITIONS, 10.0, 50, recipe="b"),
        refresh(5, RefreshAction.PARTITIONS, 10.0, 50, recipe="a"),
    ]
    compared = compared_refreshes(reversed(history))
    assert [one.token for one in compared] == ["5", "4", "3", "2", "1", "0"]
    assert [one.full_bytes for one in compared] == [1_000, 3_000, 3_000, None, None, 1_000]
    assert [one.full_seconds for one in compared] == [100.0, 200.0, 200.0, None, None, 100.0]


def test_complete_refreshes_are_scaled_by_the_size_of_the_sources() -> None:
    first = refresh(0, RefreshAction.FULL, 100.0, 1_000, source_bytes=400)
    history = [
        replace(first, seconds={"begin": 1.0, "spark": 90.0, "spark.write": 60.0}),
        refresh(1, RefreshAction.PARTITIONS, 10.0, 50, source_bytes=600),
        refresh(2, RefreshAction.NO_DATA, 0.0, 0, recipe=None, bytes=None, state=RefreshState.SKIPPED, occurrences=2),
        refresh(3, RefreshAction.MERGE, 10.0, 50, source_bytes=200),
        refresh(4, RefreshAction.PARTITIONS, 10.0, 50),
        replace(refresh(5, RefreshAction.FULL, 80.0, 800, source_bytes=800), seconds={"spark": 80.0}),
        refresh(6, RefreshAction.PARTITIONS, 10.0, 50, source_bytes=1_000),
    ]
    compared = compared_refreshes(history)[::-1]
    assert [one.full_bytes for one in compared] == [1_000, 1_500, 3_000, 500, 1_000, 800, 1_000]
    assert [one.full_seconds for one in compared] == [91.0, 121.0, 242.0, 61.0, 91.0, 80.0, 100.0]
    assert [one.refreshes for one in compared] == [1, 1, 2, 1, 1, 1, 1]


def test_refreshes_without_changes_are_counted_one_by_one(bench: Bench) -> None:
    bench.write(0, 1, 2)
    bench.refresh(1)
    for tick in (2, 2, 3, 4):
        assert isinstance(bench.refresh(tick), Skipped)
    bench.write(1, *range(10))
    bench.refresh(5)
    (month,) = saved_costs(bench.workspace.ledger.list_refreshes(bench.table, 100))
    assert (month.refreshes, month.no_data) == (5, 3)
    compared = compared_refreshes(bench.workspace.ledger.list_refreshes(bench.table, 100))
    assert [one.action for one in compared] == [RefreshAction.PARTITIONS, RefreshAction.NO_DATA, RefreshAction.INITIALIZE]
    latest, unchanged, first = (one.full_bytes or 0 for one in compared)
    assert unchanged == 3 * first
    assert latest > 2 * first, "its source has grown"


def check_saved(bench: Bench, chance: Random, rounds: int) -> None:
    """Check the saved cost of some refreshes of a growing table against a complete refresh after each of them."""
    for day in range(20):
        bench.write(day, *(chance.randrange(10**9) for _ in range(chance.randrange(500, 1_000))), name="same")
    bench.refresh(30)
    ledger = bench.workspace.ledger
    ours, really = set(), []
    for tick in range(31, 31 + rounds):
        for day in (*chance.sample(range(20), chance.randrange(4)), *range(tick - 11, tick - 11 + chance.randrange(6))):
            bench.write(day, *(chance.randrange(10**9) for _ in range(chance.randrange(500, 1_000))), name=f"{tick}")
        bench.refresh(tick)
        ours.add(ledger.list_refreshes(bench.table, 1)[0].token)
        bench.refresh(tick, is_scheduled=False, full_refresh=True)
        really.append(ledger.list_refreshes(bench.table, 1)[0])
    # The complete refreshes were made for this test only: the figures must foretell them.
    forgotten = {refresh.token for refresh in really}
    history = [refresh for refresh in ledger.list_refreshes(bench.table, 100) if refresh.token not in forgotten]
    made = [one for one in compared_refreshes(history) if one.token in ours]
    told = sum((one.full_bytes or 0) - one.bytes for one in made)
    saved = sum(one.bytes or 0 for one in really) - sum(one.bytes for one in made)
    seconds = [sum(one.full_seconds or 0.0 for one in made), sum(pace_of(one).seconds for one in really)]
    print(f"saved bytes: {told} told, {saved} really; seconds of complete refreshes, told and really: {seconds}")
    assert told == pytest.approx(saved, rel=0.15)
    assert len(made) == rounds


def test_the_saved_bytes_are_those_that_a_complete_refresh_writes(bench: Bench) -> None:
    check_saved(bench, Random(0), rounds=1)


@pytest.mark.large
@pytest.mark.parametrize("seed", range(1, 21))
def test_the_saved_bytes_of_many_tables(bench: Bench, seed: int) -> None:
    check_saved(bench, Random(seed), rounds=4)
