"""Which partitions are shown as dirty without asking the sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError, QuarantinedError
from airflow_dynamic_tables.services.refresh.partition_status import PartitionStatus, count_dirty, list_partitions
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, finish, run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support.clock import Clock
from tests.support.daily_facts import DAY, DAYS, MARCH, WITH_FACTOR, Bench, name_of, only, opened_bench


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    """A table with four days, of which the second has got a late file since."""
    with opened_bench(clock, tmp_path, empty_state) as bench:
        bench.settings = "late: report"
        bench.refresh(4)
        bench.write(1, 10)
        yield bench


def shown(bench: Bench) -> dict[str, PartitionStatus]:
    return {one.values["ds"]: one for one in list_partitions(bench.workspace, DAYS, bench.request().table)}


def dirty(bench: Bench) -> dict[int, bool | None]:
    """By day."""
    found = shown(bench)
    return {day: found[name_of(day)].dirty for day in range(-3, bench.tick + 1) if name_of(day) in found}


def at_tick(bench: Bench, tick: int) -> Bench:
    bench.tick = tick
    bench.clock.time = MARCH + tick * DAY
    return bench


def test_before_a_comparison_it_is_unknown(bench: Bench) -> None:
    assert set(dirty(bench).values()) == {None}
    assert {one.compared_at for one in shown(bench).values()} == {None}
    assert count_dirty(bench.workspace, DAYS) is None


def test_a_scheduled_refresh_reports_them_with_the_time(bench: Bench) -> None:
    bench.write(4, 40)
    bench.refresh(5)
    compared = bench.clock.time
    bench.clock.time += DAY
    shutil.rmtree(bench.folder / "facts")
    assert dirty(bench) == {0: False, 1: True, 2: False, 3: False, 4: False}, "no source is read"
    assert {one.compared_at for one in shown(bench).values()} == {compared}
    assert count_dirty(bench.workspace, DAYS) == 1


def test_a_skipped_refresh_reports_them_too(bench: Bench) -> None:
    bench.refresh(5)
    assert isinstance(bench.refresh(6), Skipped)
    assert dirty(bench) == {0: False, 1: True, 2: False, 3: False}


def test_a_refresh_of_one_removes_it(bench: Bench) -> None:
    bench.write(2, 20)
    bench.refresh(5)
    bench.refresh(5, is_scheduled=False, partitions=only(1))
    assert dirty(bench) == {0: False, 1: False, 2: True, 3: False}
    assert shown(bench)[name_of(1)].compared_at == bench.clock.time
    assert count_dirty(bench.workspace, DAYS) == 1
    bench.refresh(5, is_scheduled=False, only_dirty=True)
    assert count_dirty(bench.workspace, DAYS) == 0


def test_a_complete_refresh_removes_all(bench: Bench) -> None:
    bench.refresh(5)
    bench.refresh(5, is_scheduled=False, full_refresh=True)
    assert set(dirty(bench).values()) == {False}
    assert count_dirty(bench.workspace, DAYS) == 0


@pytest.mark.large
def test_the_next_comparison_replaces_them(bench: Bench) -> None:
    bench.refresh(5)
    shutil.rmtree(bench.folder / "facts" / f"ds={name_of(2)}")
    bench.settings = "late: refresh"
    bench.refresh(6)
    assert set(dirty(bench).values()) == {False}


def test_a_failed_refresh_leaves_them(bench: Bench) -> None:
    bench.refresh(5)
    bench.write(4, 40)
    bench.fails = True
    bench.settings = "late: refresh"
    with pytest.raises(JobFailedError):
        bench.refresh(5)
    assert dirty(bench) == {0: False, 1: True, 2: False, 3: False}


def test_all_partitions_may_be(bench: Bench) -> None:
    bench.query = WITH_FACTOR
    bench.refresh(5, is_scheduled=False, full_refresh=True)
    bench.write_factor(3)
    bench.refresh(6)
    assert dirty(bench) == {0: True, 1: True, 2: True, 3: True, 5: False}, "the refresh made the last one"
    assert count_dirty(bench.workspace, DAYS) is None, "how many are in the sources is not known"
    bench.refresh(6, is_scheduled=False, partitions=only(2))
    assert dirty(bench)[2] is False
    assert dirty(bench)[1] is True


def test_after_a_rollback_those_of_later_versions_are_dirty(bench: Bench) -> None:
    bench.refresh(5)
    bench.refresh(5, is_scheduled=False, only_dirty=True)
    rollback(bench.workspace, RollbackRequest(DAYS, 1, "back", "me"))
    assert dirty(bench) == {0: False, 1: True, 2: False, 3: False}
    assert shown(bench)[name_of(1)].version is None, "the table no longer has version 2 of it"
    bench.refresh(6)
    assert dirty(bench)[1] is (bench.rows() != bench.expected())


def test_a_refresh_that_read_the_sources_before_the_comparison_does_not_remove_them(bench: Bench) -> None:
    """A backfill reads a day, which changes before a scheduled refresh compares it and before the backfill commits."""
    at_tick(bench, 5)
    backfill = begin(bench.workspace, replace(bench.request(), is_scheduled=False, partitions=only(1)))
    assert isinstance(backfill, Attempt)
    bench.submit(backfill.plan)
    bench.write(1, 11)
    bench.refresh(6)
    finish(bench.workspace, backfill, lambda _: None, None)
    bench.tick = 5
    assert bench.rows() != bench.expected()
    assert dirty(bench)[1] is True
    bench.refresh(7)
    assert dirty(bench)[1] is True
    bench.refresh(7, is_scheduled=False, only_dirty=True)
    assert dirty(bench)[1] is False


@pytest.mark.large
def test_a_published_refresh_does_not_remove_those_found_since(bench: Bench) -> None:
    bench.settings = "late: report\n  expectations: [{row_count: {max: 2}}]"
    bench.write(1, 11)
    with suppress(QuarantinedError):
        bench.refresh(4, is_scheduled=False, partitions=only(1))
    (stage,) = bench.workspace.ledger.list_stages(DAYS)
    bench.write(1, 12)
    bench.refresh(5)
    publish(bench.workspace, stage.token)
    assert dirty(bench)[1] is True


@pytest.mark.large
def test_two_comparisons_at_once_hide_none(bench: Bench) -> None:
    """The first refresh, which reads a day before its change, ends last."""
    at_tick(bench, 5)
    bench.settings = "late: refresh"
    first = begin(bench.workspace, bench.request())
    assert isinstance(first, Attempt)
    bench.submit(first.plan)
    bench.write(1, 11)
    bench.settings = "late: report"
    bench.refresh(6)
    finish(bench.workspace, first, lambda _: None, None)
    assert dirty(bench)[1] is True


def test_frozen_ones_are_not_dirty(bench: Bench) -> None:
    bench.settings = f"late: report\n  frozen: ds <= '{name_of(1)}'"
    bench.write(2, 20)
    bench.refresh(5)
    assert dirty(bench) == {0: None, 1: None, 2: True, 3: False}
    assert shown(bench)[name_of(1)].frozen


@pytest.mark.large
def test_later_partitions_than_those_of_the_tick_are_not_compared(bench: Bench) -> None:
    bench.write(6, 60)
    bench.refresh(4, is_scheduled=False, partitions=only(6))
    bench.refresh(5)
    found = shown(bench)
    assert found[name_of(6)].dirty is None
    assert found[name_of(6)].compared_at is None
    assert found[name_of(0)].dirty is False


@pytest.mark.large
def test_a_table_that_is_not_searched(bench: Bench) -> None:
    bench.settings = "late: ignore"
    bench.refresh(5)
    assert set(dirty(bench).values()) == {None}
    bench.settings = "late: report"
    bench.refresh(6)
    bench.settings = "late: ignore"
    bench.refresh(7)
    assert dirty(bench)[1] is True, "it was dirty, and nobody has refreshed it"


def test_an_incremental_table(bench: Bench) -> None:
    bench.settings = "refresh_mode: incremental"
    bench.fails = True
    with pytest.raises(JobFailedError):
        bench.refresh(5)
    assert dirty(bench) == {0: False, 1: True, 2: False, 3: False}
    bench.fails = False
    bench.refresh(6)
    assert set(dirty(bench).values()) == {False}


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["report", "refresh"])
@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_a_partition_shown_as_clean_equals_the_query(bench: Bench, policy: str, seed: int) -> None:
    chance = Random(seed)
    bench.settings = f"late: {policy}"
    tick = 5
    for _ in range(8):
        for _ in range(chance.randrange(4)):
            bench.change(chance, tick)
        match chance.randrange(4):
            case 0:
                bench.refresh(tick, is_scheduled=False, partitions=only(chance.randrange(tick)))
            case 1:
                bench.fails = True
                with suppress(JobFailedError):
                    bench.refresh(tick)
                bench.fails = False
            case 2:
                versions = bench.workspace.table(DAYS, bench.format).versions()
                rollback(bench.workspace, RollbackRequest(DAYS, chance.choice(versions).number, f"back-{tick}-{seed}", "me"))
        tick += 1
        meanwhile = begin(bench.workspace, replace(at_tick(bench, tick).request(), is_scheduled=False, partitions=only(0)))
        assert isinstance(meanwhile, Attempt)
        bench.submit(meanwhile.plan)
        bench.change(chance, tick)
        with suppress(ConflictError):  # after a rollback, it may make the same day
            run(bench.workspace, bench.request(), bench.submit)
        finish(bench.workspace, meanwhile, lambda _: None, None)
        rows, expected = bench.rows(), bench.expected()
        for day, one in shown(bench).items():
            assert rows.get(day) == expected.get(day) or one.dirty is not False or day >= name_of(tick), (day, one)
