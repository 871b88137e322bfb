"""Incremental refreshes: only the partitions whose sources changed are replaced, and the table equals its query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError, QuarantinedError, UnsupportedError
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.catalogs import create_function
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.support.clock import Clock
from tests.support.daily_facts import (
    BY_DAY,
    DAY,
    DAYS,
    MARCH,
    WITH_FACTOR,
    Bench,
    check_random_changes,
    fail,
    name_of,
    only,
    opened_bench,
    refresh_by_hand,
)


@pytest.fixture
def bench(clock: Clock, tmp_path: Path, empty_state: Path) -> Iterator[Bench]:
    with opened_bench(clock, tmp_path, empty_state) as bench:
        bench.settings = "refresh_mode: incremental"
        bench.all_days = True
        yield bench


def last(bench: Bench) -> Refresh:
    return bench.workspace.ledger.list_refreshes(DAYS)[0]


def remove(bench: Bench, day: str) -> None:
    """Remove the rows of a day as another engine does."""
    table = bench.workspace.catalog("lake").stores()[0].tables.load_table(("sales", "days"))  # type: ignore[attr-defined]
    table.delete(f"ds = '{day}'")


def test_only_changed_partitions_are_replaced(bench: Bench) -> None:
    bench.refresh(4)
    assert bench.made.is_whole
    bench.write(1, 10)
    bench.write(-300, 7)
    bench.write(9, 9)  # of a day that has not come yet
    bench.refresh(5)
    assert bench.made == only(-300, 1, 9)
    assert bench.rows() == bench.expected()
    refresh = last(bench)
    assert (refresh.action, refresh.reason_code) == (RefreshAction.PARTITIONS, ReasonCode.SOURCES_CHANGED)
    assert f"ds={name_of(-300)} to ds={name_of(9)} (3 partitions): lake.raw.facts moved" in refresh.reason
    assert refresh.data_timestamp == MARCH + 5 * DAY


def files_of(plan: RefreshPlan) -> set[str]:
    """The folders of the files that the job of a plan reads."""
    return {file.split("/")[-2] for source in plan.sources for part in source.every_part for file in part.files}


def test_the_job_gets_only_the_files_of_the_partitions(bench: Bench) -> None:
    bench.query = f"SELECT f.ds, f.n FROM ({BY_DAY}) f LEFT JOIN raw.facts o ON datediff(f.ds, o.ds) < 3 AND o.ds <= f.ds"
    bench.refresh(4)
    assert files_of(bench.plans[-1]) == {f"ds={name_of(day)}" for day in range(4)}
    bench.write(3, 10)
    bench.refresh(5)
    assert bench.made == only(3)
    assert files_of(bench.plans[-1]) == {f"ds={name_of(day)}" for day in (1, 2, 3)}
    state = bench.plans[-1].sources[0].state
    assert state is not None
    assert set(state.partitions or ()) == {f"ds={name_of(day)}" for day in range(4)}, "the state is complete"
    bench.query = "SELECT ds, max(n) OVER (ORDER BY ds) AS n FROM raw.facts"
    bench.refresh(5, is_scheduled=False, partitions=only(2))
    assert files_of(bench.plans[-1]) == {f"ds={name_of(day)}" for day in range(4)}, "the rows of a day depend on all days"


def test_nothing_is_done_if_nothing_changed(bench: Bench) -> None:
    bench.refresh(4)
    skipped = bench.refresh(5)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.UNCHANGED
    assert last(bench).data_timestamp == MARCH + 5 * DAY
    by_hand = bench.refresh(5, is_scheduled=False, catches_up=True)
    assert isinstance(by_hand, Skipped)


def test_partitions_of_missed_ticks_are_made_at_once(bench: Bench) -> None:
    bench.refresh(4)
    for day in range(4, 20):
        bench.write(day, day)
    bench.refresh(30)
    assert bench.made == only(*range(4, 20))
    assert bench.rows() == bench.expected()
    assert last(bench).data_timestamp == MARCH + 30 * DAY


def test_a_function_that_is_declared_deterministic_hides_no_partition(bench: Bench) -> None:
    name = "lake.sales.same"
    function = CatalogFunction("shop:same", "python", {"returns": "bigint"})
    bench.refresh(3)
    create_function(bench.workspace, name, function)
    bench.query = "SELECT ds, same(n) AS n FROM raw.facts"
    bench.refresh(4)
    bench.refresh(5)
    assert bench.made.is_whole
    assert f"the catalog does not declare that {name}() is deterministic" in last(bench).reason

    declared = CatalogFunction("shop:same", "python", {"returns": "bigint", "deterministic": "true"})
    create_function(bench.workspace, name, declared, replace=True)
    bench.refresh(6)
    assert bench.made.is_whole, "the function is another one"
    bench.write(2, 20)
    bench.refresh(7)
    assert bench.made == only(2)
    assert isinstance(bench.refresh(8), Skipped)

    moved = CatalogFunction("shop:same", "python", {**declared.properties, "py_files": "file:///code/2.zip"})
    create_function(bench.workspace, name, moved, replace=True)
    bench.refresh(9)
    assert bench.made.is_whole, "its code is another one"

    bench.query = "SELECT ds, same(n) AS n FROM raw.facts WHERE ds <= current_date"
    bench.refresh(10)
    bench.refresh(11)
    assert bench.made.is_whole
    assert "CURRENT_DATE may be another one each time" in last(bench).reason, "the function may return a column of that name"
    with pytest.raises(ConfigurationError, match="'deterministic' of a function is 'true' or 'false', not 'yes'"):
        create_function(bench.workspace, name, CatalogFunction("shop:same", "python", {"deterministic": "yes"}), replace=True)


def test_a_change_that_cannot_be_mapped_replaces_all_rows(bench: Bench) -> None:
    bench.query = WITH_FACTOR
    bench.refresh(4)
    bench.write_factor(3)
    bench.write(1, 10)
    bench.refresh(5)
    assert bench.made.is_whole
    assert last(bench).reason_code is ReasonCode.NOT_INCREMENTAL
    assert "lake.raw.factor moved" in last(bench).reason
    bench.write(2, 20)
    bench.refresh(6)
    assert bench.made == only(2), "the change counts once"
    assert bench.rows() == bench.expected()


def test_another_query_replaces_all_rows(bench: Bench) -> None:
    """Also if a partition was made of the new query by hand."""
    bench.refresh(4)
    bench.write_factor(3)
    bench.query = WITH_FACTOR
    bench.refresh(4, is_scheduled=False, partitions=only(1))
    assert bench.made == only(1)
    bench.refresh(5)
    assert bench.made.is_whole
    assert "its definition changed" in last(bench).reason
    assert bench.rows() == bench.expected()


def test_a_table_that_was_made_by_its_schedule(bench: Bench) -> None:
    bench.settings = "initial: latest"
    bench.refresh(4)
    assert bench.made == only(3)
    bench.settings = "refresh_mode: incremental"
    bench.refresh(5)
    assert bench.made.is_whole
    assert bench.rows() == bench.expected()


def test_rows_that_another_engine_removed_are_made_again(bench: Bench) -> None:
    bench.refresh(4)
    remove(bench, name_of(2))
    bench.refresh(4, is_scheduled=False, partitions=only(0))  # does not hide it
    bench.refresh(5)
    assert bench.made == only(2)
    assert bench.rows() == bench.expected()


def test_a_refresh_that_fails_is_repeated_by_partition(bench: Bench) -> None:
    bench.refresh(4)
    bench.write(1, 10)
    bench.fails = True
    with pytest.raises(JobFailedError):
        bench.refresh(5)
    bench.fails = False
    bench.refresh(5, is_scheduled=False, catches_up=True)
    assert bench.made == only(1)
    assert bench.rows() == bench.expected()


def test_a_change_during_the_refresh_is_found_by_the_next_one(bench: Bench) -> None:
    bench.refresh(4)
    bench.write(1, 10)
    bench.tick = 5
    bench.clock.time = MARCH + 5 * DAY

    def submit(plan: RefreshPlan) -> None:
        bench.submit(plan)
        bench.write(1, 20)
        bench.write(2, 20)

    run(bench.workspace, bench.request(), submit)
    bench.refresh(6)
    assert bench.made == only(1, 2)
    assert bench.rows() == bench.expected()


def test_a_rollback_is_repaired(bench: Bench) -> None:
    bench.refresh(4)
    bench.write(1, 10)
    bench.refresh(5)
    bench.write(2, 20)
    rollback(bench.workspace, RollbackRequest(DAYS, 1, "back", "me"))
    bench.refresh(6)
    assert bench.rows() == bench.expected()


def test_a_compaction_changes_nothing(bench: Bench) -> None:
    bench.refresh(4)
    bench.write(1, *range(DEFAULT_LIMITS.many))
    bench.scattered = True
    bench.refresh(5)
    assert compact(bench.workspace, DAYS).made == 1
    assert isinstance(bench.refresh(6), Skipped)
    bench.write(2, 10)
    bench.refresh(7)
    assert bench.made == only(2)


def test_a_published_refresh_is_not_repeated(bench: Bench) -> None:
    bench.settings += "\n  expectations: [{name: rows, row_count: {max: 1}, action: quarantine}]"
    bench.refresh(4, partitions=only(0))
    bench.write(1, 10)
    with pytest.raises(QuarantinedError):
        bench.refresh(5)
    (stage,) = bench.workspace.ledger.list_stages(DAYS)
    publish(bench.workspace, stage.token)
    assert isinstance(bench.refresh(6), Skipped)
    assert bench.rows() == bench.expected()


def test_a_backfill_replaces_the_partitions_of_its_time(bench: Bench) -> None:
    bench.refresh(4)
    reached = last(bench).data_timestamp
    bench.refresh(2, is_scheduled=False)
    assert bench.made == only(1)
    table = bench.workspace.existing_table(DAYS)
    assert fresh_until(bench.workspace, table.current()) == reached
    assert bench.rows() == bench.expected()


def test_a_run_for_an_earlier_time_is_skipped(bench: Bench) -> None:
    bench.refresh(5)
    bench.write(1, 10)
    skipped = bench.refresh(4)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.code is ReasonCode.ALREADY_FRESH


def test_a_source_whose_changes_are_ignored(bench: Bench) -> None:
    bench.query = WITH_FACTOR
    bench.settings = "refresh_mode: incremental\n  on_change: {raw.factor: ignore}"
    bench.refresh(4)
    bench.write_factor(3)
    assert isinstance(bench.refresh(5), Skipped)
    bench.write(1, 10)
    bench.refresh(6)
    assert bench.made == only(1)


class TestStrict:
    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        bench.settings = "refresh_mode: incremental_strict"
        bench.refresh(4)
        return bench

    def test_changed_partitions(self, bench: Bench) -> None:
        bench.write(1, 10)
        bench.refresh(5)
        assert bench.made == only(1)

    def test_all_rows_are_refused(self, bench: Bench) -> None:
        bench.query = "SELECT ds, n + 1 AS n FROM raw.facts"
        with pytest.raises(UnsupportedError, match=r"its definition changed\. Refresh all rows once with: .* --full-refresh"):
            bench.refresh(5)
        assert isinstance(bench.refresh(5, is_scheduled=False, full_refresh=True), Version)
        bench.write(1, 10)
        bench.refresh(6)
        assert bench.made == only(1)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("query", [BY_DAY, WITH_FACTOR])
def test_any_sequence_of_changes_equals_a_full_refresh(bench: Bench, query: str, seed: int) -> None:
    """With failures, refreshes by hand, rollbacks, removals by another engine, and changes while the job runs."""
    bench.query = query
    happenings = (fail, refresh_by_hand, roll_back, remove_any, change_meanwhile)
    check_random_changes(bench, Random(seed), 15, happenings)


def roll_back(bench: Bench, chance: Random, _: int) -> None:
    versions = [each.number for each in bench.workspace.existing_table(DAYS).versions()]
    rollback(bench.workspace, RollbackRequest(DAYS, chance.choice(versions), str(chance.random()), "me"))


def remove_any(bench: Bench, chance: Random, _: int) -> None:
    remove(bench, chance.choice([*bench.rows()]))


def change_meanwhile(bench: Bench, chance: Random, _: int) -> None:
    bench.changes_meanwhile = chance
