"""Turns of ordinary refreshes: how far they bring a table, which partitions they replace, and what a turn waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schedule import Freshness, grid_time
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.services.continuous.base import TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.loop import Batch, MicroRefresh
from airflow_dynamic_tables.services.refresh import catching_up
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import parents_of
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_days, write_numbers

TABLES = """
defaults: {catalog: lake, database: live}
dynamic_tables:
- {name: numbers, freshness: 10 seconds, query: SELECT rand() AS x}
- {name: child, freshness: 10 seconds, skip_unchanged: false, query: SELECT x FROM daily}
- {name: daily, freshness: 1 day, query: SELECT 1 AS x}
- name: days
  freshness: 10 seconds
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  skip_unchanged: false
  query: SELECT '1' AS ds, 1 AS n
"""


@dataclass
class Live:
    """Tables whose job writes what it is told, at a time that a test sets."""

    folder: Path
    time: datetime = datetime(2024, 3, 2, 12, 0, 3, tzinfo=UTC)
    plans: list[RefreshPlan] = field(default_factory=list)
    identity: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        self.workspace: Workspace = open_workspace(embedded_settings({"AIRFLOW_HOME": str(self.folder)}), lambda: self.time)
        (self.folder / "live.yaml").write_text(TABLES)
        self.definitions = load_definitions(self.folder / "live.yaml")

    def work(self, name: str) -> Work:
        table = self.definitions.table(name)
        assert table is not None
        parents = parents_of(table, self.definitions)
        return Work(self.workspace, table, {}, parents, self.identity, "dag/run/refresh", self.submit, lambda: None)

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        if plan.partition_keys:
            write_days(plan, {str(spec.get("ds", "2024-03-01")): [1] for spec in plan.partitions})
        else:
            write_numbers(plan)

    def refresh(self, name: str, schedule_time: datetime) -> None:
        table = self.definitions.table(name)
        assert table is not None
        request = RefreshRequest(table, {}, schedule_time, str(uuid4()), "me")
        assert isinstance(run(self.workspace, request, write_numbers), Version)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.workspace.close()


def fresh(outcome: TurnOutcome) -> datetime | None:
    (version,) = outcome.versions
    return version.data_timestamp


def test_a_turn_brings_the_table_to_the_last_multiple_of_its_freshness_once(live: Live) -> None:
    work = live.work("numbers")
    strategy = MicroRefresh(work)
    assert fresh(strategy.turn(1)) == datetime(2024, 3, 2, 12, 0, 0, tzinfo=UTC)
    again = MicroRefresh(work).turn(1)  # of the task that comes next
    assert (again.versions, again.reason) == ((), "fresh up to 2024-03-02T12:00:00+00:00 already")
    live.time += timedelta(seconds=10)
    assert fresh(strategy.turn(2)) == datetime(2024, 3, 2, 12, 0, 10, tzinfo=UTC)
    assert [plan.token for plan in live.plans] == [work.token(1), work.token(2)]


def test_a_turn_makes_up_for_the_partitions_of_the_time_in_which_there_was_none(live: Live) -> None:
    strategy = MicroRefresh(live.work("days"))
    strategy.turn(1)
    assert live.plans[-1].partitions.is_whole, "the first turn makes all that its sources have"
    live.time = datetime(2024, 3, 4, 0, 1, tzinfo=UTC)
    strategy.turn(2)
    assert sorted(str(spec["ds"]) for spec in live.plans[-1].partitions) == ["2024-03-02", "2024-03-03", "2024-03-04"]
    live.time = datetime(2024, 3, 5, tzinfo=UTC)
    strategy.turn(3)
    assert [spec["ds"] for spec in live.plans[-1].partitions] == ["2024-03-04"]


def test_one_turn_by_a_clock_that_is_ahead_stops_no_later_turn(live: Live) -> None:
    strategy = MicroRefresh(live.work("numbers"))
    live.time = now = grid_time(datetime.now(UTC), Freshness(10))
    assert fresh(strategy.turn(1)) == now
    live.time = now + timedelta(days=1)
    assert fresh(strategy.turn(2)) == now + timedelta(days=1)
    live.time = now + timedelta(seconds=10)
    assert fresh(strategy.turn(3)) == live.time
    assert strategy.turn(4).reason == f"fresh up to {live.time.isoformat()} already"


def test_a_turn_after_one_by_a_clock_that_is_ahead_makes_up_for_the_time_before(live: Live) -> None:
    strategy = MicroRefresh(live.work("days"))
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [f"{today + timedelta(days=number):%Y-%m-%d}" for number in (-1, 0)]
    live.time = today - timedelta(hours=3)
    strategy.turn(1)
    live.time = today + timedelta(days=3)
    strategy.turn(2)
    live.time = today + timedelta(minutes=1)
    outcome = strategy.turn(3)
    assert sorted(str(spec["ds"]) for spec in live.plans[-1].partitions) == days
    assert fresh(outcome) == live.time


def test_a_table_is_as_fresh_as_its_parents_and_shows_new_data_of_others_meanwhile(live: Live) -> None:
    strategy = MicroRefresh(live.work("child"))
    assert strategy.turn(1).reason == (
        "lake.live.daily must be fresh up to 2024-03-02T00:00:00+00:00 but has not been refreshed by schedule yet"
    )
    live.refresh("daily", datetime(2024, 3, 2, tzinfo=UTC))
    assert fresh(strategy.turn(2)) == datetime(2024, 3, 2, 12, tzinfo=UTC)

    live.time = datetime(2024, 3, 3, 0, 5, tzinfo=UTC)
    assert fresh(strategy.turn(3)) == datetime(2024, 3, 2, 23, 59, 59, tzinfo=UTC)
    live.refresh("daily", datetime(2024, 3, 3, tzinfo=UTC))
    assert fresh(strategy.turn(4)) == live.time


def test_what_a_turn_refreshes_can_be_narrowed_or_put_off(live: Live) -> None:
    batches: list[Batch | None] = [None]
    strategy = MicroRefresh(live.work("numbers"), lambda request: batches.pop() if batches else Batch(request, more=True))
    assert strategy.turn(1).reason == "no batch is complete yet"
    outcome = strategy.turn(2)
    assert (len(outcome.versions), outcome.more) == (1, True)


def test_every_try_of_a_task_has_tokens_of_its_own(live: Live) -> None:
    first = live.work("numbers")
    live.identity = uuid4()
    second = live.work("numbers")
    assert len({first.token(1), first.token(2), second.token(1), second.token(2)}) == 4
    assert UUID(first.token(1))


def test_a_new_try_goes_on_at_once_and_the_old_one_that_wakes_up_commits_nothing(live: Live) -> None:
    versions: list[Version] = []

    def sleep_while_the_next_try_works(plan: RefreshPlan) -> None:
        live.identity = uuid4()
        versions.extend(MicroRefresh(live.work("numbers")).turn(1).versions)
        live.submit(plan)

    zombie = MicroRefresh(replace(live.work("numbers"), submit=sleep_while_the_next_try_works))
    with pytest.raises(ConflictError):
        zombie.turn(1)
    (version,) = versions
    assert live.workspace.existing_table(live.work("numbers").table.identifier).current() == version
    assert live.workspace.ledger.list_stages() == []


def test_the_grid_begins_at_midnight_utc() -> None:
    time = datetime.fromisoformat("2024-03-02T12:34:56.789+01:00")
    assert grid_time(time, Freshness(10)) == datetime(2024, 3, 2, 11, 34, 50, tzinfo=UTC)
    assert grid_time(time, Freshness(86_400)) == datetime(2024, 3, 2, tzinfo=UTC)


def test_a_turn_tells_every_commit_that_it_takes(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "MOST_PARTITIONS", 2)
    strategy = MicroRefresh(live.work("days"))
    strategy.turn(1)
    live.time += timedelta(days=4)
    assert [version.number for version in strategy.turn(2).versions] == [2, 3]
