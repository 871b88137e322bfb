"""Frozen partitions: no refresh replaces them unless a user names them and insists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.exceptions import JobFailedError, UnsupportedError
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.clock import Clock
from tests.support.daily_facts import DAY, DAYS, MARCH, WITH_FACTOR, Bench, name_of, only, opened_bench

FROZEN = 'frozen: "ds < {now - 3 days}"'
"""At tick 6, the days before day 3 are frozen."""


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        bench.all_days = True
        yield bench


def reason_of(bench: Bench) -> str:
    return bench.workspace.ledger.list_refreshes(DAYS)[0].reason


class TestScheduled:
    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        bench.settings = f"late: refresh\n  {FROZEN}"
        return bench

    def test_the_first_refresh_makes_everything(self, bench: Bench) -> None:
        bench.write(-300, 7)
        bench.refresh(4)
        assert bench.rows() == bench.expected()

    def test_late_changes_of_frozen_partitions_are_counted_and_left(self, bench: Bench) -> None:
        bench.refresh(6)
        for day in (0, 2, 3):
            bench.write(day, 10)
        plan = bench.live(6)
        assert (plan.replaced, plan.frozen_changed) == (only(3), 2)
        bench.refresh(6)
        assert bench.made == only(3)
        told = f"frozen partitions with changed sources: 2 (ds={name_of(0)} and ds={name_of(2)})"
        assert told in plan.reason
        assert told in reason_of(bench)
        skipped = bench.refresh(6)
        assert isinstance(skipped, Skipped)
        assert told in skipped.reason.text
        assert bench.live(6).frozen_changed == 2

    def test_a_change_for_all_partitions_replaces_the_others(self, bench: Bench) -> None:
        bench.query = WITH_FACTOR
        bench.refresh(6)
        before = bench.rows()
        bench.write_factor(3)
        bench.write(-200, 5)
        bench.refresh(6)
        assert bench.made == only(3, 5)
        assert bench.rows() == {**before, name_of(3): [9]}

    def test_dirty_partitions_that_a_user_asks_for(self, bench: Bench) -> None:
        bench.refresh(6)
        bench.write(0, 10)
        asked = {"is_scheduled": False, "only_dirty": True}
        skipped = bench.refresh(6, **asked)
        assert isinstance(skipped, Skipped)
        assert "frozen partitions with changed sources: 1" in skipped.reason.text
        bench.refresh(6, **asked, replaces_frozen=True)
        assert bench.made == only(0)
        assert bench.rows() == bench.expected()

    def test_missed_ticks_fill_holes_and_replace_nothing(self, bench: Bench) -> None:
        """The ticks of days 4 to 8 were missed; day 5 was made by hand, and is frozen at tick 10 as days 4 and 6 are."""
        bench.refresh(4)
        for day in (4, 5, 6, 8):
            bench.write(day, day)
        bench.refresh(6, is_scheduled=False, partitions=only(5))
        bench.write(5, 50)
        bench.refresh(10)
        assert set(map(str, bench.made)) == set(map(str, only(4, 6, 8)))
        assert f"without ds={name_of(5)}, frozen" in reason_of(bench)
        assert bench.rows() == {**bench.expected(), name_of(5): [5]}
        assert bench.workspace.ledger.list_refreshes(DAYS)[0].data_timestamp == MARCH + 10 * DAY

    def test_an_earlier_tick_thaws_nothing(self, bench: Bench) -> None:
        bench.refresh(9)
        bench.write(3, 30)
        bench.tick = 4
        with pytest.raises(UnsupportedError, match=rf"ds={name_of(3)} of {DAYS} cannot be refreshed, because frozen.*--force"):
            run(bench.workspace, replace(bench.request(), is_scheduled=False), bench.submit)

    def test_the_clock_does_not_matter(self, bench: Bench) -> None:
        """A retry days later decides as the first attempt."""
        bench.refresh(6)
        bench.write(3, 30)
        bench.write(6, 60)
        bench.fails = True
        with pytest.raises(JobFailedError):
            bench.refresh(7)
        bench.fails = False
        bench.write(4, 40)
        bench.clock.time += timedelta(days=30)
        bench.refresh(7)
        assert set(map(str, bench.made)) == set(map(str, only(4, 6)))


class TestAskedFor:
    @pytest.fixture(params=["late: report", "refresh_mode: incremental"])
    def bench(self, bench: Bench, request: pytest.FixtureRequest) -> Bench:
        bench.settings = f"{request.param}\n  {FROZEN}"
        bench.refresh(6)
        bench.write(0, 10)
        return bench

    def test_partitions_are_refused_without_force(self, bench: Bench) -> None:
        before = bench.rows()
        asked = {"is_scheduled": False, "partitions": only(0, 4)}
        with pytest.raises(UnsupportedError, match=rf"ds={name_of(0)} of {DAYS} cannot be refreshed, because frozen.*--force"):
            bench.refresh(6, **asked)
        assert bench.rows() == before
        bench.refresh(6, **asked, replaces_frozen=True)
        assert bench.rows() == bench.expected()

    def test_a_full_refresh_is_refused_without_force(self, bench: Bench) -> None:
        before = bench.rows()
        with pytest.raises(UnsupportedError, match=f"{DAYS} has frozen partitions .* --full-refresh --force"):
            bench.refresh(6, is_scheduled=False, full_refresh=True)
        assert bench.rows() == before
        bench.refresh(6, is_scheduled=False, full_refresh=True, replaces_frozen=True)
        assert bench.rows() == bench.expected()

    def test_a_suspended_table_that_is_refreshed_anyway_thaws_nothing(self, bench: Bench) -> None:
        before = bench.rows()
        bench.refresh(6, is_scheduled=False, catches_up=True, force=True, replaces_frozen=True)
        assert bench.rows() == before

    def test_partitions_that_are_not_frozen(self, bench: Bench) -> None:
        bench.write(4, 40)
        bench.refresh(6, is_scheduled=False, partitions=only(4))
        assert bench.rows()[name_of(4)] == [40]


class TestIncremental:
    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        bench.settings = f"refresh_mode: incremental\n  {FROZEN}"
        return bench

    def test_a_change_for_all_partitions_replaces_the_others(self, bench: Bench) -> None:
        bench.query = WITH_FACTOR
        for day in (4, 5):
            bench.write(day, day)
        bench.refresh(6)
        before = bench.rows()
        bench.write_factor(3)
        bench.write(6, 6)
        bench.write(-200, 5)
        assert bench.live(6).replaced == only(3, 4, 5, 6)
        bench.refresh(6)
        assert bench.rows() == {**before, **{name_of(day): [3 * day] for day in (3, 4, 5, 6)}}
        assert "frozen partitions with changed sources: 4" in reason_of(bench)
        assert isinstance(bench.refresh(6), Skipped)

    def test_another_definition_replaces_the_others(self, bench: Bench) -> None:
        bench.refresh(6)
        bench.query = "SELECT ds, n FROM raw.facts WHERE n >= 0"
        assert bench.live(6).replaced == only(3)
        bench.refresh(6)
        assert bench.made == only(3)
        assert isinstance(bench.refresh(6), Skipped)
        bench.write(4, 4)
        bench.refresh(6)
        assert bench.made == only(4)

    def test_it_is_refused_if_the_others_are_not_known(self, bench: Bench) -> None:
        bench.query = "SELECT f.ds, f.n * x.n AS n FROM raw.facts f CROSS JOIN raw.factor x UNION ALL SELECT '2024-03-05', 1"
        bench.refresh(6)
        before = bench.rows()
        bench.write_factor(3)
        with pytest.raises(UnsupportedError, match=r"it is not known which other ones to replace: .*--full-refresh --force"):
            bench.refresh(6)
        assert bench.rows() == before
        assert bench.live(6).action is None

    def test_unreadable_sources_do_not_replace_all_rows(self, bench: Bench) -> None:
        bench.refresh(6)
        (bench.folder / "facts").rename(bench.folder / "hidden")
        with pytest.raises(Exception, match="facts"):
            bench.refresh(6)
        assert bench.rows()

    def test_without_the_key_everything_is_made_up_for(self, bench: Bench) -> None:
        bench.refresh(6)
        bench.write(0, 10)
        assert isinstance(bench.refresh(6), Skipped)
        bench.settings = "refresh_mode: incremental"
        bench.refresh(6)
        assert bench.made == only(0)
        assert bench.rows() == bench.expected()

    @pytest.mark.sampled
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("query", ["SELECT ds, n FROM raw.facts", WITH_FACTOR])
    def test_any_sequence_of_changes(self, bench: Bench, query: str, seed: int) -> None:
        """Frozen partitions keep their rows, and all others are as the query returns them."""
        chance = Random(seed)
        bench.query = query
        tick = 4
        bench.refresh(tick)
        for _ in range(6):
            before = bench.rows()
            for _ in range(chance.randrange(4)):
                bench.change(chance, tick)
            tick += chance.randrange(2)
            foretold = bench.live(tick)
            outcome = bench.refresh(tick)
            assert (foretold.action is RefreshAction.NO_DATA) == isinstance(outcome, Skipped)
            bound = name_of(tick - 3)
            after = bench.rows()
            assert {day: rows for day, rows in after.items() if day < bound} == {
                day: rows for day, rows in before.items() if day < bound
            }
            assert {day: rows for day, rows in after.items() if day >= bound} == {
                day: rows for day, rows in bench.expected().items() if day >= bound
            }
            assert isinstance(bench.refresh(tick), Skipped)


def test_a_list_of_literals(bench: Bench) -> None:
    bench.settings = f"refresh_mode: incremental\n  frozen: \"ds IN ('{name_of(1)}', '{name_of(3)}')\""
    bench.refresh(6)
    for day in range(5):
        bench.write(day, 10)
    bench.refresh(6)
    assert bench.made == only(0, 2, 4)


def test_a_start_date_longer_ago_than_a_commit_goes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first refresh makes all partitions, also those that are frozen by the time of its second commit."""
    monkeypatch.setattr("airflow_dynamic_tables.services.refresh.catching_up.MOST_PARTITIONS", 2)
    bench.settings = f"start_date: 2024-03-01\n  {FROZEN}"
    bench.refresh(8, catches_up=True)
    assert len(bench.plans) > 2
    assert bench.rows() == bench.expected()


def test_only_frozen_partitions_of_missed_ticks(bench: Bench) -> None:
    """All that it would make is frozen, so the table is fresh up to the tick."""
    bench.settings = ""
    bench.refresh(4)
    bench.write(4, 4)
    bench.refresh(5, is_scheduled=False, partitions=only(4))
    bench.settings = "frozen: \"ds < '2024-03-20'\""
    bench.write(4, 40)
    skipped = bench.refresh(5)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.FROZEN
    assert bench.rows()[name_of(4)] == [4]
