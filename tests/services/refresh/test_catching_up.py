"""Ticks that failed or never ran: the next scheduled refresh makes their partitions, and until then the table says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import refreshes
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConflictError, UnsupportedError
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.refresh import planning
from airflow_dynamic_tables.services.refresh.catching_up import fresh_then
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import parents_of, pending, what_is_missing
from airflow_dynamic_tables.services.status import TableStatus, list_tables, overview, sample, show_table
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_days

DAY = datetime(2024, 3, 1, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HOURS, DAYS, TOTAL, LOCAL = (TableIdentifier("lake", "sales", name) for name in ("hours", "days", "total", "local"))
YAML = """
defaults: {catalog: lake, database: sales, skip_unchanged: false}
dynamic_tables:
- name: hours
  partitioned_by: [ds]
  freshness: 1 hour
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd-HH}
  query: SELECT '1' AS ds, 1 AS n
- name: days
  partitioned_by: [ds]
  freshness: 1 day
  timezone: Europe/Berlin
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT left(ds, 10) AS ds, n FROM hours
- name: local
  partitioned_by: [ds]
  freshness: 60 minutes
  timezone: Europe/Berlin
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd-HH}
  query: SELECT '1' AS ds, 1 AS n
- {name: total, freshness: 60 minutes, skip_unchanged: true, query: "SELECT ds, n FROM hours"}
"""


@dataclass
class Bench:
    """Tables whose sources have the hours that a test puts there; its job reads those that a plan asks for."""

    workspace: Workspace
    clock: Clock
    folder: Path
    present: dict[str, list[int]] = field(default_factory=dict)
    plans: list[RefreshPlan] = field(default_factory=list)
    yaml: str = YAML

    def request(self, time: datetime, table: TableIdentifier = HOURS, **asked: Any) -> RefreshRequest:
        (self.folder / "tables.yaml").write_text(self.yaml)
        definitions = load_definitions(self.folder / "tables.yaml")
        return RefreshRequest(definitions.tables[table], {}, time, str(uuid4()), "test", **{"catches_up": True, **asked})

    def unwaited(self, time: datetime, table: TableIdentifier, **asked: Any) -> RefreshRequest:
        """A request that takes its parents as they are, as one of the command line does."""
        (self.folder / "tables.yaml").write_text(self.yaml)
        definitions = load_definitions(self.folder / "tables.yaml")
        return self.request(time, table, waits=False, parents=parents_of(definitions.tables[table], definitions), **asked)

    def job(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        found = {ds: numbers for ds, numbers in self.present.items() if plan.partitions.covers({"ds": ds})}
        write_days(plan, found)

    def tick(self, time: datetime, table: TableIdentifier = HOURS, **asked: Any) -> Version:
        return self.run(self.request(time, table, **asked))

    def run(self, request: RefreshRequest) -> Version:
        self.clock.time = max(self.clock.time, request.schedule_time)
        outcome = run(self.workspace, request, self.job)
        assert isinstance(outcome, Version), outcome
        return outcome

    def fail(self, time: datetime, table: TableIdentifier = HOURS) -> None:
        with pytest.raises(ZeroDivisionError):
            run(self.workspace, self.request(time, table), lambda _: 1 / 0)

    def put(self, hours: Iterable[str]) -> None:
        self.present |= {hour: [1] for hour in hours}

    def rows(self, table: TableIdentifier = HOURS) -> list[str]:
        return sorted(row["ds"] for row in sample(self.workspace, table, 10_000))

    def status(self, table: TableIdentifier = HOURS) -> TableStatus:
        (listed,) = (one for one in list_tables(self.workspace, {}, complete=False).tables if one.identifier == str(table))
        assert show_table(self.workspace, table).status == listed
        return listed


@pytest.fixture
def bench(workspace: Workspace, clock: Clock, tmp_path: Path) -> Bench:
    clock.time = DAY
    return Bench(workspace, clock, tmp_path)


def hours(*numbers: int, day: str = "2024-03-01") -> list[str]:
    return [f"{day}-{number:02d}" for number in numbers]


def at(hour: int) -> datetime:
    return DAY + timedelta(hours=hour)


def planned(bench: Bench) -> list[str]:
    return [str(spec["ds"]) for spec in bench.plans[-1].partitions]


def test_the_tick_after_a_failed_one_makes_its_partitions_too(bench: Bench) -> None:
    bench.put(hours(18, 19))
    bench.tick(at(20))
    bench.put(hours(20))
    bench.tick(at(21))
    bench.put(hours(21, 22))
    bench.fail(at(22))
    assert bench.tick(at(23)).data_timestamp == at(23)
    assert planned(bench) == hours(21, 22)
    bench.put(hours(23))
    assert bench.tick(at(24)).data_timestamp == at(24)
    assert planned(bench) == hours(23)
    assert bench.rows() == hours(*range(18, 24))


def test_a_scheduler_that_was_down_for_a_day_leaves_no_partition_out(bench: Bench) -> None:
    bench.put(hours(0))
    bench.tick(at(1))
    bench.put(hours(*range(1, 24)) + hours(0, 1, day="2024-03-02"))
    assert bench.tick(at(26)).data_timestamp == at(26)
    assert len(bench.rows()) == 26
    (latest, *_) = bench.workspace.ledger.list_refreshes(HOURS, 1)
    assert latest.reason.endswith("; it makes up for ds=2024-03-01-01 to ds=2024-03-02-00 (24 partitions)")


def test_a_table_says_which_partitions_it_lacks_and_its_children_wait_for_them(bench: Bench) -> None:
    bench.tick(at(20))
    bench.clock.time = at(25)
    status = bench.status()
    assert (status.late, status.lag_seconds) == (True, 5 * 3600)
    assert (status.missing_partitions, status.missing) == (4, "ds=2024-03-01-20 to ds=2024-03-01-23 (4 partitions)")
    child = bench.request(DAY + timedelta(hours=23), DAYS).table  # midnight in Berlin
    parents = parents_of(child, load_definitions(bench.folder / "tables.yaml"))
    waits = pending(bench.workspace, parents, at(23))
    assert what_is_missing(waits).endswith("is fresh only up to 2024-03-01T20:00:00+00:00")
    bench.tick(at(22), partitions=PartitionSet.of([{"ds": "2024-03-01-21"}]))
    assert bench.status().missing_partitions == 3, "a user made one of them"
    bench.tick(at(25))
    assert (bench.status().missing_partitions, bench.status().late) == (0, False)
    assert not pending(bench.workspace, parents, at(23))


def test_a_new_table_begins_with_all_that_its_sources_have(bench: Bench) -> None:
    bench.put(hours(*range(5)))
    assert bench.tick(at(5)).data_timestamp == at(5)
    assert bench.plans[-1].partitions.is_whole
    assert bench.plans[-1].reason.endswith("it starts with all partitions of its sources (initial: all)")
    assert bench.rows() == hours(*range(5))


@pytest.mark.parametrize(
    ("says", "made", "reason"),
    [
        ("initial: latest", hours(4), "it starts with the latest tick (initial: latest)"),
        ("start_date: 2024-03-01 02:00:00", hours(2, 3, 4), "it starts with start_date: ds=2024-03-01-02 and ds=2024-03-01-03"),
    ],
)
def test_a_new_table_begins_where_its_definition_says(bench: Bench, says: str, made: list[str], reason: str) -> None:
    bench.yaml = YAML.replace("freshness: 1 hour", f"freshness: 1 hour\n  {says}")
    bench.put(hours(*range(5)))
    assert bench.tick(at(5)).data_timestamp == at(5)
    assert bench.rows() == made
    assert bench.plans[-1].reason.endswith(reason)


def test_a_table_that_a_user_begins_with_a_time_goes_on_from_there(bench: Bench) -> None:
    bench.put(hours(*range(6)))
    assert bench.tick(at(3), catches_up=False).data_timestamp == at(3)
    assert bench.plans[-1].reason.endswith("it starts at the requested schedule time")
    assert bench.rows() == hours(2)
    assert bench.tick(at(5)).data_timestamp == at(5)
    assert bench.rows() == hours(2, 3, 4)


def test_a_table_that_a_user_begins_with_partitions_makes_no_promise_before_its_first_tick(bench: Bench) -> None:
    bench.put(hours(*range(6)))
    assert bench.tick(at(3), partitions=PartitionSet.of([{"ds": "2024-03-01-02"}])).data_timestamp is None
    assert bench.status().problem == "no scheduled refresh has made a version yet"
    assert bench.tick(at(5)).data_timestamp == at(5)
    assert bench.rows() == hours(2, 3, 4), "what the table has is not replaced, and nothing between is left out"


def test_a_refresh_for_one_time_moves_the_table_on_only_when_no_tick_is_missing(bench: Bench) -> None:
    """So do runs of a backfill, which come in any order."""
    bench.tick(at(20))
    bench.put(hours(20, 21, 22))
    assert bench.tick(at(22), catches_up=False).data_timestamp == at(20)
    assert bench.tick(at(23), catches_up=False).data_timestamp == at(20)
    assert bench.tick(at(21), catches_up=False).data_timestamp == at(23), "and it fills the only hole"
    assert bench.tick(at(19), catches_up=False).data_timestamp == at(23), "an older one takes nothing away"


def test_a_partition_that_was_made_before_its_time_was_over_is_made_again(bench: Bench) -> None:
    bench.tick(at(20))
    bench.tick(at(21), partitions=PartitionSet.of([{"ds": "2024-03-01-21"}]))
    bench.put(hours(20, 21))
    assert bench.tick(at(22)).data_timestamp == at(22)
    assert bench.rows() == hours(20, 21)


def test_after_a_rollback_the_next_tick_makes_the_partitions_since_then(bench: Bench) -> None:
    bench.put(hours(20, 21, 22, 23))
    bench.tick(at(20))
    bench.tick(at(21))
    bench.tick(at(22))
    rollback(bench.workspace, RollbackRequest(HOURS, 1, str(uuid4()), "test"))
    assert bench.status().data_timestamp == at(20)
    assert bench.tick(at(23)).data_timestamp == at(23)
    assert planned(bench) == hours(20, 21, 22)


def test_a_long_catch_up_takes_several_commits_and_goes_on_after_a_failure(bench: Bench) -> None:
    bench.put(["2024-03-01-00"])
    bench.tick(at(1))
    late = at(2_501)
    bench.put(f"{at(number):%Y-%m-%d-%H}" for number in (1, 999, 1_001, 2_000, 2_002, 2_500))
    bench.clock.time = late

    def job(plan: RefreshPlan) -> None:
        if len(bench.plans) == 2:
            raise ZeroDivisionError
        bench.job(plan)

    request = bench.request(late)
    with pytest.raises(ZeroDivisionError):
        run(bench.workspace, request, job)
    assert bench.status().data_timestamp == at(1_001)
    assert bench.tick(late).data_timestamp == late
    assert [len(plan.partitions) for plan in bench.plans[1:]] == [1_000, 1_000, 500]
    assert len(bench.rows()) == 7
    assert len({plan.token for plan in bench.plans}) == 4


def test_a_table_that_went_back_since_a_refresh_began_makes_it_plan_again(bench: Bench) -> None:
    bench.tick(at(21))
    begun = bench.request(at(23), since=at(22))
    registered = bench.workspace.look_up(begun.table.identifier)
    with pytest.raises(ConflictError, match="has gone back since then"):
        fresh_then(bench.workspace, registered, begun, PartitionSet.of([{"ds": "2024-03-01-22"}]), has_watermark=False)


@pytest.mark.parametrize(
    "days",
    [["2024-03-30", "2024-03-31", "2024-04-01"], ["2024-10-26", "2024-10-27", "2024-10-28"]],
    ids=["spring", "autumn"],
)
def test_days_around_a_change_of_the_clock_are_made_up_for_once(bench: Bench, days: list[str]) -> None:
    first = datetime.fromisoformat(days[0]).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    bench.tick(first)
    bench.tick(first, DAYS)
    bench.put(days)
    assert bench.tick(first + timedelta(days=3), DAYS).data_timestamp == first + timedelta(days=3)
    assert planned(bench) == days


def test_nothing_to_do_makes_up_for_missed_ticks_too(bench: Bench) -> None:
    bench.yaml = YAML.replace("skip_unchanged: false", "skip_unchanged: true")
    bench.tick(at(20), is_scheduled=True)
    bench.clock.time = at(23)
    outcome = run(bench.workspace, bench.request(at(23), is_scheduled=True), bench.job)
    assert isinstance(outcome, Skipped)
    assert outcome.up_to == at(23)
    assert bench.status().fresh_until == at(23)


def test_a_refresh_that_does_not_wait_is_fresh_only_as_far_as_its_parents_are(bench: Bench) -> None:
    bench.tick(at(-1))
    bench.tick(at(-1), DAYS)
    assert bench.run(bench.unwaited(at(23), DAYS)).data_timestamp == at(-1), "it read the hours up to the midnight before"
    assert planned(bench) == ["2024-03-01"]
    assert bench.run(bench.unwaited(at(23), DAYS, catches_up=False)).data_timestamp == at(-1)
    bench.tick(at(47))
    assert bench.tick(at(47), DAYS, catches_up=False).data_timestamp == at(-1), "what was made too early does not count"
    assert bench.tick(at(47), DAYS).data_timestamp == at(47)
    assert planned(bench) == ["2024-03-01", "2024-03-02"]


def test_partitions_named_by_hand_count_when_the_parents_had_all_of_them(bench: Bench) -> None:
    bench.tick(at(-1))
    bench.tick(at(-1), DAYS)
    bench.tick(at(23))
    named = PartitionSet.of([{"ds": "2024-03-01"}])
    assert bench.run(bench.unwaited(at(47), DAYS, partitions=named)).data_timestamp == at(23)


def test_a_complete_table_that_does_not_wait_is_fresh_only_as_far_as_its_parents_are(bench: Bench) -> None:
    bench.tick(at(20))
    assert bench.run(bench.unwaited(at(20), TOTAL)).data_timestamp == at(20)
    assert bench.run(bench.unwaited(at(23), TOTAL, full_refresh=True)).data_timestamp == at(20)
    assert isinstance(run(bench.workspace, bench.unwaited(at(23), TOTAL, is_scheduled=True), bench.job), Skipped)
    assert bench.status(TOTAL).fresh_until == at(20), "nothing moved, because the parent is behind"
    bench.tick(at(23))
    assert isinstance(run(bench.workspace, bench.unwaited(at(23), TOTAL, is_scheduled=True), bench.job), Skipped | Version)
    assert bench.status(TOTAL).fresh_until == at(23)


@pytest.fixture
def as_earlier_releases(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """A refresh as releases made it that called a table fresh up to the newest tick that was committed."""

    def refresh(time: datetime) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(planning, "fresh_then", lambda _workspace, _registered, request, *_, **__: request.schedule_time)
            bench.tick(time, catches_up=False)
        with Database(bench.workspace.settings.database_url).transaction() as connection:
            connection.execute(update(refreshes).values(unbroken=None))

    return refresh


def test_the_first_tick_after_an_upgrade_fills_the_holes_of_earlier_releases(
    bench: Bench, as_earlier_releases: Callable[[datetime], None], caplog: pytest.LogCaptureFixture
) -> None:
    bench.put(hours(19, 20))
    as_earlier_releases(at(20))
    as_earlier_releases(at(21))
    bench.fail(at(22))
    as_earlier_releases(at(23))  # hour 22 has no rows
    as_earlier_releases(at(26))  # the scheduler was down for two ticks
    assert bench.status().fresh_until == at(26)
    bench.put([*hours(21), f"{at(24):%Y-%m-%d-%H}", f"{at(26):%Y-%m-%d-%H}"])
    assert bench.tick(at(27)).data_timestamp == at(27)
    assert planned(bench) == [f"{at(hour):%Y-%m-%d-%H}" for hour in (21, 23, 24, 26)]
    holes = "ds=2024-03-01-21 to ds=2024-03-02-00 (3 partitions)"
    assert bench.plans[-1].reason.endswith(f"; it makes {holes}, which earlier releases left out")
    assert f"lake.sales.hours lacks {holes}" in caplog.text
    assert bench.rows() == [f"{at(hour):%Y-%m-%d-%H}" for hour in (19, 20, 21, 24, 26)]
    bench.tick(at(28))
    assert planned(bench) == [f"{at(27):%Y-%m-%d-%H}"]


def test_what_a_table_has_is_no_hole_though_no_refresh_of_it_is_remembered(
    bench: Bench, as_earlier_releases: Callable[[datetime], None]
) -> None:
    bench.put(hours(18, 19, 21, 22))
    for hour in (19, 20, 22, 23):
        as_earlier_releases(at(hour))
    bench.workspace.ledger.prune(datetime.now(UTC) + timedelta(days=1))
    assert len(bench.workspace.ledger.list_refreshes(HOURS)) == 1
    bench.put(hours(20))
    bench.tick(at(24))
    assert planned(bench) == hours(20, 23)
    assert bench.rows() == hours(18, 19, 20, 21, 22)


def test_a_day_whose_last_hour_an_earlier_release_left_out_is_made_again(
    bench: Bench, as_earlier_releases: Callable[[datetime], None]
) -> None:
    bench.yaml = YAML.replace("yyyy-MM-dd-HH", "yyyy-MM-dd")
    bench.put(["2024-03-01"])
    as_earlier_releases(at(22))
    as_earlier_releases(at(23))
    as_earlier_releases(at(25))
    bench.tick(at(26))
    assert planned(bench) == ["2024-03-01", "2024-03-02"]


def test_holes_that_cannot_be_looked_for_are_said_once(
    bench: Bench,
    as_earlier_releases: Callable[[datetime], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    as_earlier_releases(at(20))
    as_earlier_releases(at(22))

    def refuse(*_: object) -> None:
        raise UnsupportedError("This catalog lists no partitions.")

    monkeypatch.setattr(type(bench.workspace.catalog("lake")), "list_partitions", refuse)
    bench.tick(at(23))
    assert planned(bench) == hours(22)
    assert "dynamic-tables refresh lake.sales.hours --partition FIRST..LAST" in caplog.text
    caplog.clear()
    bench.tick(at(24))
    assert "--partition" not in caplog.text


def test_a_rollback_to_a_version_of_an_earlier_release_has_its_holes_filled_too(
    bench: Bench, as_earlier_releases: Callable[[datetime], None]
) -> None:
    bench.put(hours(19, 20, 21))
    as_earlier_releases(at(20))
    as_earlier_releases(at(22))
    bench.tick(at(23))
    rollback(bench.workspace, RollbackRequest(HOURS, 2, str(uuid4()), "test"))
    assert bench.rows() == hours(19, 21)
    bench.tick(at(24))
    assert bench.rows() == hours(19, 20, 21)


def test_a_failed_tick_is_not_hidden_by_a_later_refresh_of_old_partitions(bench: Bench) -> None:
    bench.put(hours(18, 19, 20))
    bench.tick(at(20))
    bench.fail(at(21))
    bench.tick(at(21), partitions=PartitionSet.of([{"ds": "2024-03-01-18"}]))
    bench.tick(at(20), catches_up=False)
    status = bench.status()
    assert (status.last_refresh, status.late, status.missing) == ("FAILED", False, "ds=2024-03-01-20")
    assert status.last_error == "division by zero"
    (listed,) = overview(bench.workspace, {HOURS: bench.workspace.dynamic_table(HOURS)}, {}, complete=False)
    assert (listed.last_refresh, listed.missing) == ("FAILED", "ds=2024-03-01-20")
    bench.tick(at(21), partitions=PartitionSet.of([{"ds": "2024-03-01-20"}]))
    assert (bench.status().last_refresh, bench.status().missing) == ("SUCCEEDED", None), "a user made up for it"


def lost(bench: Bench, how: str, time: datetime) -> None:
    """Let a tick of the table ``local`` make nothing."""
    bench.clock.time = time
    match how:
        case "failed":
            bench.fail(time, LOCAL)
        case "suspended":
            suspend(bench.workspace, LOCAL, "the source moves")
            assert isinstance(run(bench.workspace, bench.request(time, LOCAL), bench.job), Skipped)
            resume(bench.workspace, LOCAL)
        case "rolled back":
            bench.tick(time, LOCAL)
            rollback(bench.workspace, RollbackRequest(LOCAL, 1, str(uuid4()), "test"))
        case "made too early":
            bench.tick(time, LOCAL, partitions=PartitionSet.of([{"ds": f"{time.astimezone(BERLIN):%Y-%m-%d-%H}"}]))


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["down", "failed", "suspended", "rolled back", "made too early"])
@pytest.mark.parametrize(
    "start", ["2024-03-05T23:00Z", "2024-03-30T23:00Z", "2024-10-26T22:00Z"], ids=["winter", "spring", "autumn"]
)
def test_whatever_ticks_are_lost_a_table_has_in_the_end_what_its_source_has(bench: Bench, start: str, how: str) -> None:
    """From midnight in Berlin on; the clock is changed at the second or third tick after it, while ticks are lost."""
    midnight = datetime.fromisoformat(start)
    ticks = [midnight + timedelta(hours=hour) for hour in range(8)]
    for tick in ticks:
        if tick == ticks[0] or tick >= ticks[5]:
            bench.tick(tick, LOCAL)
        else:
            lost(bench, how, tick)
        name = f"{tick.astimezone(BERLIN):%Y-%m-%d-%H}"
        bench.present[name] = [*bench.present.get(name, []), tick.hour]
        if tick >= ticks[5]:
            assert (bench.status(LOCAL).fresh_until, bench.status(LOCAL).missing) == (tick, None)
    bench.present.popitem()  # the hour that has just begun
    rows: dict[str, list[int]] = {}
    for row in sample(bench.workspace, LOCAL, 100):
        rows.setdefault(row["ds"], []).append(row["n"])
    assert rows == bench.present
