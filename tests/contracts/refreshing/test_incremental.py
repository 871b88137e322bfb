"""Incremental refreshes of tables in every format: after each one the table equals its query."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.services.refresh.requests import Skipped
from tests.contracts.refreshing.place import Place
from tests.support.daily_facts import BY_DAY, WITH_FACTOR, Bench, check_random_changes, fail, only, refresh_by_hand

pytestmark = pytest.mark.needs("states")


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Bench:
    sources = tmp_path / "sources"
    sources.mkdir()
    bench = Bench(place.workspace, place.clock, sources, place.table, place.format, settings="refresh_mode: incremental")
    bench.all_days = True
    bench.begin()
    return bench


def test_only_changed_partitions_are_replaced(bench: Bench) -> None:
    bench.refresh(4)
    assert isinstance(bench.refresh(5), Skipped)
    bench.write(1, 10)
    bench.write(-300, 7)
    bench.refresh(6)
    assert bench.made == only(-300, 1)
    assert isinstance(bench.refresh(7), Skipped)
    assert bench.rows() == bench.expected()


@pytest.mark.parametrize("place", ["sql/iceberg", "sql/delta"], indirect=True)
def test_the_table_is_repaired_after_another_engine_went_back(place: Place, bench: Bench) -> None:
    bench.refresh(4)
    go_back = place.remember()
    bench.write(1, 10)
    bench.refresh(5)
    go_back()
    bench.write(2, 20)
    bench.refresh(6)
    assert bench.rows() == bench.expected()


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("query", [BY_DAY, WITH_FACTOR])
def test_any_sequence_of_changes_equals_a_full_refresh(bench: Bench, query: str, seed: int) -> None:
    bench.query = query
    check_random_changes(bench, Random(seed), 8, (fail, refresh_by_hand))
