"""How fresh a parent has to be; and those that failed for good: which tick was the last in time, what makes up for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import UpstreamError
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.refresh.requests import Parent, RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.refresh.upstream import (
    PendingParent,
    in_time,
    parents_needed_until,
    parents_of,
    pending,
    waited_too_long,
    what_is_missing,
    why_wait,
)
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_numbers

DAILY, HOURLY, NIGHTLY = (TableIdentifier("lake", "sales", name) for name in ("daily", "hourly", "nightly"))
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: daily, freshness: 1 day, query: SELECT 1 AS x}
- {name: hourly, freshness: 1 hour, query: SELECT 1 AS x}
- {name: nightly, freshness: 1 day, query: SELECT d.x FROM daily d JOIN hourly h ON d.x = h.x}
- {name: berlin, freshness: 1 day, timezone: Europe/Berlin, query: SELECT 1 AS x}
- {name: rare, freshness: 1 hour, schedule: 0 0 * * *, query: SELECT 1 AS x}
- {name: often, freshness: 1 day, schedule: 0 * * * *, query: SELECT 1 AS x}
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Definitions:
    path = tmp_path / "sales.yaml"
    path.write_text(YAML)
    return load_definitions(path)


def request_of(definitions: Definitions, table: TableIdentifier, token: str, at: datetime) -> RefreshRequest:
    return RefreshRequest(definitions.tables[table], definitions.sources, at, token=token, owner=token)


def parent_of(definitions: Definitions, parent: TableIdentifier) -> Parent:
    """A parent of the refresh at the first of March."""
    table = definitions.tables[NIGHTLY]
    (found,) = (found for found in parents_of(table, definitions) if found.identifier == parent)
    return in_time([found], table, MARCH)[0]


def look(workspace: Workspace, definitions: Definitions, parent: TableIdentifier, *failed: datetime) -> PendingParent | None:
    """How that parent looks when its runs for these ticks have failed."""

    def has_given_up(workflow_id: str, tick: datetime) -> bool:
        return workflow_id == parent.workflow_id and tick in failed

    waiting = pending(workspace, [parent_of(definitions, parent)], MARCH, has_given_up)
    return next((each for each in waiting if isinstance(each, PendingParent)), None)


def test_a_parent_whose_run_for_the_tick_failed_is_waited_for_no_longer(workspace: Workspace, definitions: Definitions) -> None:
    waiting = look(workspace, definitions, DAILY, MARCH)
    assert waiting is not None
    assert waiting.lost_tick == MARCH
    assert str(waited_too_long([waiting])) == (
        "UPSTREAM_FAILED: lake.sales.daily must be fresh up to 2024-03-01T00:00:00+00:00 but its run for "
        "2024-03-01T00:00:00+00:00 failed, and no other comes in time. Mend what failed and clear that run of "
        "dynamic_table__lake__sales__daily; when it has succeeded, clear this one."
    )


def test_a_parent_that_comes_again_in_time_is_waited_for(workspace: Workspace, definitions: Definitions) -> None:
    last = MARCH + timedelta(hours=23)
    waiting = look(workspace, definitions, HOURLY, MARCH, last - timedelta(hours=1), last + timedelta(hours=1))
    assert waiting.lost_tick is None
    lost = look(workspace, definitions, HOURLY, last)
    assert lost.lost_tick == last


def test_a_refresh_by_hand_that_is_under_way_is_waited_for(workspace: Workspace, definitions: Definitions) -> None:
    begin(workspace, request_of(definitions, DAILY, "by hand", MARCH))
    waiting = look(workspace, definitions, DAILY, MARCH)
    assert waiting.lost_tick is None


def test_a_refresh_of_an_earlier_tick_serves_nobody(workspace: Workspace, definitions: Definitions) -> None:
    begin(workspace, request_of(definitions, DAILY, "late", MARCH - timedelta(days=1)))
    waiting = look(workspace, definitions, DAILY, MARCH)
    assert waiting.lost_tick == MARCH


def test_a_version_that_landed_although_its_run_failed_serves(workspace: Workspace, definitions: Definitions) -> None:
    run(workspace, request_of(definitions, DAILY, "landed", MARCH), write_numbers)
    assert look(workspace, definitions, DAILY, MARCH) is None


def test_a_version_that_lands_while_airflow_is_asked_serves(workspace: Workspace, definitions: Definitions) -> None:
    def fails_and_is_mended(_workflow_id: str, _tick: datetime) -> bool:
        run(workspace, request_of(definitions, DAILY, "mended", MARCH), write_numbers)
        return True

    assert pending(workspace, [parent_of(definitions, DAILY)], MARCH, fails_and_is_mended) == ()


@pytest.mark.parametrize(
    ("table", "schedule_time", "last"),
    [
        pytest.param("daily", "2024-03-01 00:00Z", "2024-03-01 23:59Z", id="until its next tick"),
        pytest.param("daily", "2024-03-01 10:37Z", "2024-03-01 23:59Z", id="by hand, within the day"),
        pytest.param("rare", "2024-03-01 00:00Z", "2024-03-01 00:59Z", id="fresher than it is refreshed"),
        pytest.param("often", "2024-03-01 00:00Z", "2024-03-01 00:59Z", id="refreshed more often than it is fresh"),
        pytest.param("berlin", "2024-03-31 00:00+01:00", "2024-03-31 23:59+02:00", id="a day of 23 hours"),
        pytest.param("berlin", "2024-10-27 00:00+02:00", "2024-10-27 22:59+01:00", id="a freshness of a day of 25 hours"),
    ],
)
def test_which_tick_of_a_parent_of_every_minute_is_the_last_in_time(
    definitions: Definitions, table: str, schedule_time: str, last: str
) -> None:
    child = definitions.tables[TableIdentifier("lake", "sales", table)]
    at = datetime.fromisoformat(schedule_time).astimezone(ZoneInfo(child.timezone))
    (parent,) = in_time([Parent(DAILY, "iceberg", "* * * * *", "Asia/Kolkata", child.freshness)], child, at)
    assert parent.last_tick == datetime.fromisoformat(last)
    (unscheduled,) = in_time([parent], replace(child, cron=None), at)
    assert unscheduled.last_tick == at.astimezone(UTC) + child.freshness.period - timedelta(minutes=1)


TABLES = """
defaults: {catalog: lake, database: crm}
dynamic_tables:
- {name: scheduled, freshness: 1 day, on: [elsewhere], query: SELECT 1 AS x}
- {name: updated, freshness: 36 hours, schedule: none, on: [elsewhere], query: SELECT 1 AS x}
- {name: elsewhere, freshness: 1 day, query: SELECT 1 AS x}
- {name: child, freshness: 1 day, query: SELECT s.x FROM scheduled s JOIN updated u ON s.x = u.x}
- name: patient
  freshness: 1 hour
  query: SELECT s.x FROM scheduled s JOIN updated u ON s.x = u.x
  max_lag: {scheduled: 2 days, lake.crm.updated: 1 hour}
"""

NOON = datetime(2024, 1, 2, 12, 30, tzinfo=UTC)


def test_a_parent_without_a_schedule_has_to_keep_its_own_promise(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(TABLES)
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    scheduled, updated = parents_of(definitions.tables[TableIdentifier("lake", "crm", "child")], definitions)
    assert scheduled.required(NOON) == datetime(2024, 1, 2, tzinfo=UTC)
    assert updated.required(NOON) == NOON - timedelta(hours=36)
    assert updated.last_tick_before(NOON) is None, "nobody knows when it is refreshed next"


def test_max_lag_lets_a_parent_be_older_and_never_demands_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(TABLES)
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    scheduled, updated = parents_of(definitions.tables[TableIdentifier("lake", "crm", "patient")], definitions)
    assert scheduled.required(NOON) == NOON - timedelta(days=2)
    assert updated.required(NOON) == NOON - timedelta(hours=36), "its own freshness is longer"
    day = datetime(2024, 1, 1, tzinfo=UTC)
    assert scheduled.serves_until(day) == day + timedelta(days=2)
    assert updated.serves_until(day) == day + timedelta(hours=36)


def test_a_refresh_begins_while_a_parent_lags_as_far_as_it_may(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "sales.yaml"
    path.write_text(f"{YAML}- {{name: quick, freshness: 1 hour, query: SELECT x FROM daily, max_lag: {{daily: 36 hours}}}}\n")
    definitions = load_definitions(path)
    quick = TableIdentifier("lake", "sales", "quick")
    parents = parents_of(definitions.tables[quick], definitions)

    def wait(at: datetime) -> str | None:
        waits = why_wait(workspace, request_of(definitions, quick, "child", at), parents, None, lambda *_: False)
        return None if waits is None else what_is_missing(pending(workspace, waits.upstream, waits.needed_until))

    assert "has not been refreshed by schedule yet" in str(wait(MARCH)), "a parent without rows is waited for"
    run(workspace, request_of(definitions, DAILY, "parent", MARCH), write_numbers)
    assert wait(MARCH + timedelta(hours=36)) is None
    late = str(wait(MARCH + timedelta(hours=37)))
    assert late.startswith("lake.sales.daily must be fresh up to 2024-03-01T01:00:00+00:00"), late
    request = request_of(definitions, quick, "child", MARCH + timedelta(hours=36))
    version = run(workspace, request, write_numbers)
    assert isinstance(version, Version)
    assert version.data_timestamp == MARCH + timedelta(hours=36), "its own children need not wait for the parent"


def test_a_suspended_parent_is_told_as_such(workspace: Workspace, definitions: Definitions) -> None:
    ensure(workspace, definitions.tables[DAILY])
    suspend(workspace, DAILY, "the source moves")
    waiting = look(workspace, definitions, DAILY)
    assert waiting is not None
    assert "but lake.sales.daily is suspended (the source moves); resume it to refresh again" in str(waited_too_long([waiting]))
    resume(workspace, DAILY)
    assert "has not been refreshed by schedule yet" in str(waited_too_long(filter(None, [look(workspace, definitions, DAILY)])))


def test_a_suspended_parent_is_not_waited_for(workspace: Workspace, definitions: Definitions) -> None:
    ensure(workspace, definitions.tables[DAILY])
    suspend(workspace, DAILY, "the source moves")
    request = request_of(definitions, NIGHTLY, "child", MARCH)
    parents = parents_of(request.table, definitions)
    with pytest.raises(UpstreamError, match=r"^UPSTREAM_SUSPENDED: .*daily is suspended .the source moves."):
        why_wait(workspace, request, parents, None, lambda *_: False)
    begin(workspace, replace(request_of(definitions, DAILY, "by hand", MARCH), force=True))
    assert why_wait(workspace, request, parents, None, lambda *_: False), "a refresh by hand is under way"
    assert why_wait(workspace, replace(request, waits=False), parents, None, lambda *_: False) is None


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ({}, "2024-03-01 01:31+01:00"),
        ({"is_by_hand": True}, "2024-03-01 00:00+01:00"),
        ({"is_by_hand": True, "full_refresh": True}, "2024-03-01 01:31+01:00"),
        ({"partitions": PartitionSet.of([{"ds": "2024-01-30"}, {"ds": "2024-01-31"}])}, "2024-02-01 00:00+01:00"),
        ({"partitions": PartitionSet.of([{"ds": "2024-03-01"}])}, "2024-03-01 01:31+01:00"),
        ({"partitions": PartitionSet.of([{"ds": None}])}, "2024-03-01 01:31+01:00"),
    ],
    ids=["schedule", "by hand", "full refresh", "days of January", "today", "rows without a day"],
)
def test_a_run_by_hand_needs_its_parents_for_its_partitions(tmp_path: Path, asked: dict[str, Any], needed: str) -> None:
    path = tmp_path / "sales.yaml"
    path.write_text("""
dynamic_tables:
- name: lake.sales.days
  freshness: 1 day
  timezone: Europe/Berlin
  partitioned_by: [ds]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT 1 AS x, '2' AS ds
""")
    (table,) = load_definitions(path).tables.values()
    at = datetime.fromisoformat("2024-03-01 01:31+01:00")
    assert parents_needed_until(RefreshRequest(table, {}, at, "t", "t", **asked)) == datetime.fromisoformat(needed)
