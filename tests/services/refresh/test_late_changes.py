"""Changes of sources that arrive after the partitions of their time were made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from tests.support.clock import Clock
from tests.support.daily_facts import BY_DAY, BY_MONTH, DAY, DAYS, MARCH, WITH_FACTOR, Bench, name_of, only, opened_bench


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        yield bench


class TestRefresh:
    def test_a_late_file_makes_its_partition_again(self, bench: Bench) -> None:
        bench.refresh(4)
        bench.write(4, 4)
        bench.write(1, 10)
        bench.refresh(5)
        assert bench.made == only(4, 1)
        assert bench.rows() == bench.expected()
        refresh = bench.workspace.ledger.list_refreshes(DAYS)[0]
        assert refresh.reason_code is ReasonCode.SCHEDULED
        assert f"it replaces ds={name_of(1)}, whose sources changed later: lake.raw.facts moved" in refresh.reason

    def test_only_late_partitions_are_made_if_nothing_else_changed(self, bench: Bench) -> None:
        bench.refresh(4)
        bench.refresh(5)
        bench.write(2, 20)
        bench.refresh(5)
        assert bench.made == only(2)
        assert bench.workspace.ledger.list_refreshes(DAYS)[0].reason_code is ReasonCode.LATE_DATA
        assert isinstance(bench.refresh(5), Skipped)
        assert bench.rows() == bench.expected()

    def test_a_query_that_names_the_time_returns_older_partitions_otherwise(self, bench: Bench) -> None:
        bench.query = "SELECT ds, n FROM raw.facts WHERE ds >= date_sub(current_date(), 2)"
        bench.refresh(4)
        bench.write(1, 10)
        bench.refresh(5)
        assert bench.made == only(4)
        assert isinstance(bench.refresh(5, only_dirty=True), Skipped)

    def test_a_partition_that_came_late(self, bench: Bench) -> None:
        """Neither the table nor its source had it when all was made."""
        bench.refresh(4)
        bench.write(-300, 7)
        bench.refresh(5)
        assert only(-300).specs[0] in bench.made.specs
        assert bench.rows() == bench.expected()

    def test_a_partition_that_is_gone(self, bench: Bench) -> None:
        bench.refresh(4)
        shutil.rmtree(bench.folder / "facts" / f"ds={name_of(0)}")
        bench.refresh(5)
        assert name_of(0) not in bench.rows()
        assert bench.rows() == bench.expected()

    def test_a_rewritten_file(self, bench: Bench) -> None:
        bench.write(0, 1, 2, 3, name="same")
        bench.refresh(4)
        bench.write(0, 4, 5, 6, name="same")
        bench.refresh(5)
        assert bench.rows() == bench.expected()

    def test_a_late_day_makes_its_month_again(self, bench: Bench) -> None:
        bench.query, bench.pattern = BY_MONTH, "yyyy-MM"
        bench.write(-40, 7)
        bench.write(-10, 8)
        bench.refresh(4)
        bench.write(-41, 9)
        bench.write(-300, 1)
        bench.refresh(5)
        assert bench.made == PartitionSet.of({"ds": name_of(day)[:7]} for day in (-300, -41))
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(6), Skipped)

    def test_a_source_that_feeds_every_partition_makes_all_again(self, bench: Bench) -> None:
        bench.query = WITH_FACTOR
        bench.refresh(4)
        bench.write_factor(3)
        bench.refresh(5)
        assert bench.made.is_whole
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(6), Skipped)

    def test_partitions_that_were_never_made_are_not_late(self, bench: Bench) -> None:
        bench.settings = "late: refresh\n  initial: latest"
        bench.refresh(4)
        bench.write(1, 10)
        bench.write(4, 40)
        bench.refresh(5)
        assert bench.made == only(4)

    def test_all_that_were_made_are_late_if_any_may_be(self, bench: Bench) -> None:
        bench.query = WITH_FACTOR
        bench.settings = "late: refresh\n  initial: latest"
        bench.refresh(4)
        bench.write(4, 40)
        bench.refresh(5)
        bench.write_factor(3)
        bench.refresh(6)
        assert bench.made == only(3, 4, 5)

    def test_a_refresh_that_fails_leaves_them_late(self, bench: Bench) -> None:
        bench.refresh(4)
        bench.write(1, 10)
        bench.fails = True
        with pytest.raises(JobFailedError):
            bench.refresh(5)
        bench.fails = False
        bench.refresh(6)
        assert bench.rows() == bench.expected()

    def test_a_refresh_that_was_killed_hides_no_late_partition(self, bench: Bench) -> None:
        bench.refresh(4)
        bench.write(1, 10)
        bench.tick = 5
        begin(bench.workspace, bench.request())
        bench.refresh(6)
        assert bench.rows() == bench.expected()

    def test_a_rollback_makes_the_partitions_of_undone_versions_late(self, bench: Bench) -> None:
        bench.refresh(4)
        bench.write(1, 10)
        bench.refresh(5)
        rollback(bench.workspace, RollbackRequest(DAYS, 1, "back", "me"))
        bench.refresh(6)
        assert bench.rows() == bench.expected()

    def test_a_change_during_the_refresh_is_late_for_the_next_one(self, bench: Bench) -> None:
        bench.refresh(3)
        bench.write(1, 10)
        bench.tick = 4
        bench.clock.time = MARCH + 4 * DAY

        def submit(plan: RefreshPlan) -> None:
            bench.submit(plan)
            bench.write(1, 20)

        run(bench.workspace, bench.request(), submit)
        assert bench.rows() != bench.expected()
        bench.refresh(5)
        assert bench.rows() == bench.expected()

    @pytest.mark.sampled
    @pytest.mark.parametrize("query", [BY_DAY, WITH_FACTOR])
    @pytest.mark.parametrize("seed", range(4))
    def test_any_sequence_of_changes_equals_a_full_refresh(self, bench: Bench, query: str, seed: int) -> None:
        chance = Random(seed)
        bench.query = query
        tick = 4
        bench.refresh(tick)
        for _ in range(12):
            for _ in range(chance.randrange(4)):
                bench.change(chance, tick)
            tick += chance.randrange(3)
            bench.refresh(tick)
            assert bench.rows() == bench.expected()
        spared = sum(plan.action is RefreshAction.PARTITIONS for plan in bench.plans)
        assert spared or query == WITH_FACTOR


class TestDirty:
    """Refreshes that a user asks for."""

    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        bench.settings = ""
        bench.refresh(4)
        return bench

    def test_dirty_partitions_are_made_again_and_no_others(self, bench: Bench) -> None:
        for day in (1, 3):
            bench.write(day, 10 * day)
        bench.refresh(4, is_scheduled=False, only_dirty=True)
        assert bench.made == only(1, 3), "also those of the latest tick"
        assert bench.rows() == bench.expected()
        refresh = bench.workspace.ledger.list_refreshes(DAYS)[0]
        assert (refresh.reason_code, refresh.data_timestamp) == (ReasonCode.LATE_DATA, MARCH + 4 * DAY)

    def test_there_are_none(self, bench: Bench) -> None:
        skipped = bench.refresh(4, is_scheduled=False, only_dirty=True)
        assert isinstance(skipped, Skipped)
        assert skipped.reason.text == "no partition is known to be dirty"

    def test_they_exclude_other_choices(self, bench: Bench) -> None:
        with pytest.raises(ConfigurationError, match="dirty partitions, partition and full_refresh exclude each other"):
            replace(bench.request(), only_dirty=True, full_refresh=True)

    def test_a_table_that_was_never_refreshed(self, bench: Bench) -> None:
        bench.workspace.catalog("lake").drop_table(DAYS.path)
        assert isinstance(bench.refresh(4, is_scheduled=False, only_dirty=True), Skipped)


class TestSources:
    """Changes that do not count."""

    def test_a_source_whose_changes_are_ignored(self, bench: Bench) -> None:
        bench.query = WITH_FACTOR
        bench.settings = "late: refresh\n  on_change: {raw.factor: ignore}"
        bench.refresh(4)
        bench.write_factor(3)
        bench.write(1, 10)
        bench.refresh(5)
        assert only(1).specs[0] in bench.made.specs
        assert not bench.made.is_whole

    def test_a_source_that_the_query_reads_since_yesterday(self, bench: Bench) -> None:
        """A new query is for the partitions that come."""
        bench.refresh(4)
        bench.write(4, 4)
        bench.query = WITH_FACTOR
        bench.refresh(5)
        assert bench.made == only(4)

    def test_partitions_that_a_backfill_replaces_now_are_left_to_it(self, bench: Bench) -> None:
        bench.refresh(4)
        for day in (0, 1, 4):
            bench.write(day, 10 * day)
        bench.tick, bench.clock.time = 5, MARCH + 5 * DAY
        backfill = begin(bench.workspace, replace(bench.request(), is_scheduled=False, partitions=only(1)))
        bench.refresh(5)
        assert bench.made == only(0, 4)
        assert isinstance(backfill, Attempt)


class TestReport:
    def test_it_is_the_default_and_names_them(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        bench.settings = ""
        bench.refresh(4)
        bench.write(1, 10)
        bench.write(2, 20)
        bench.write(4, 40)
        bench.refresh(5)
        assert bench.made == only(4)
        told = f"ds={name_of(1)} and ds={name_of(2)} may be out of date, because sources changed later: lake.raw.facts moved"
        assert told in bench.workspace.ledger.list_refreshes(DAYS)[0].reason
        assert told in caplog.text

    def test_a_skipped_refresh_names_them_too(self, bench: Bench) -> None:
        bench.settings = ""
        bench.refresh(4)
        bench.refresh(5)
        bench.write(1, 10)
        skipped = bench.refresh(6)
        assert isinstance(skipped, Skipped)
        assert f"ds={name_of(1)} may be out of date" in skipped.reason.text
        bench.refresh(6, is_scheduled=False, partitions=only(1))
        skipped = bench.refresh(7)
        assert isinstance(skipped, Skipped)
        assert "out of date" not in skipped.reason.text

    def test_any_partition_may_be_out_of_date(self, bench: Bench) -> None:
        bench.settings, bench.query = "", WITH_FACTOR
        bench.refresh(4)
        bench.write_factor(2)
        bench.refresh(5)
        assert bench.made == only(4)
        assert "; rows of any partition may be out of date" in bench.workspace.ledger.list_refreshes(DAYS)[0].reason

    def test_ignored_ones_are_not_named(self, bench: Bench) -> None:
        bench.settings = "late: ignore"
        bench.refresh(4)
        bench.write(1, 10)
        skipped = bench.refresh(5)
        assert isinstance(skipped, Skipped)
        assert "out of date" not in skipped.reason.text
