"""Incremental refreshes of tables in every format: after each one the table equals its query."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.services.refresh.requests import Skipped
from tests.contracts.refreshing.place import Place
from tests.support.daily_facts import BY_DAY, WITH_FACTOR, Bench, only

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
    chance = Random(seed)
    bench.query = query
    tick = 4
    bench.refresh(tick)
    for _ in range(8):
        for _ in range(chance.randrange(4)):
            bench.change(chance, tick)
        match chance.randrange(4):
            case 0:
                bench.fails = True
                with pytest.raises(JobFailedError):
                    bench.refresh(tick, is_scheduled=False, full_refresh=True)
                bench.fails = False
            case 1:
                bench.refresh(tick, is_scheduled=False, partitions=only(chance.randrange(tick)))
        tick += chance.randrange(3)
        bench.refresh(tick)
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(tick), Skipped), bench.workspace.ledger.list_refreshes(bench.table)[0].reason
    assert RefreshAction.PARTITIONS in {plan.action for plan in bench.plans}
