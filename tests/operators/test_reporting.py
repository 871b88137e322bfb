"""Who hears of a commit: the table's asset, and another one that Airflow took first under the same URI."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetResult, GetAssetByUri
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.operators.reporting import OTHER_EVENTS, ReportsCommits, report_commit, report_commits
from tests.support.airflow_version import since

OURS = dynamic_table_asset("lake.sales.daily")
OTHER = Asset("daily revenue", OURS.uri)
TICK = datetime(2024, 1, 2, tzinfo=UTC)


def told(monkeypatch: pytest.MonkeyPatch, active: Asset) -> tuple[list[Any], dict[str, list[str]]]:
    """What a task has as outlets at its end, and the names of the assets whose events carry the report, by outlet."""

    def send(msg: GetAssetByUri) -> AssetResult:
        assert msg.uri == OURS.uri
        return AssetResult(name=active.name, uri=active.uri, group=active.group)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    task = ReportsCommits(task_id="refresh", inlets=[OTHER], outlets=[OURS])
    task.hide_assets()
    assert (task.inlets, task.outlets) == ([], [])
    events = OutletEventAccessors()
    context: Any = {"outlet_events": events}
    version = Version(1, "token", "s1", TICK, TICK)
    report = report_commit(context, task, version, None, TICK)
    of_alias = [event.dest_asset_key.name for event in events[OTHER_EVENTS].asset_alias_events if event.extra == report]
    return task.outlets, {"own": [OURS.name] if events[OURS].extra == report else [], "alias": of_alias}


def test_the_tables_asset_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, OURS) == ([OURS], {"own": [OURS.name], "alias": []})


def test_an_asset_of_another_name_hears_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, OTHER) == ([OTHER_EVENTS], {"own": [], "alias": [OURS.name, OTHER.name]})


def test_of_several_commits_each_has_an_event_with_its_own_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = AssetResult(name=OURS.name, uri=OURS.uri, group=OURS.group)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: answer), raising=False)
    task = ReportsCommits(task_id="refresh", outlets=[OURS])
    task.hide_assets()
    events = OutletEventAccessors()
    days = [PartitionSet.of([{"ds": f"2024-01-0{day}"}]) for day in (1, 2)]
    commits = [(Version(number, f"t{number}", "s", TICK, TICK, partitions=day), None) for number, day in enumerate(days)]
    reports = report_commits({"outlet_events": events}, task, commits)
    assert [report["partitions"] for report in reports] == [["ds=2024-01-01"], ["ds=2024-01-02"]]
    assert task.outlets == [OTHER_EVENTS]
    found = events[OTHER_EVENTS].asset_alias_events
    assert [(event.dest_asset_key.name, event.extra) for event in found] == [(OURS.name, report) for report in reports]


def test_a_task_without_a_commit_tells_nobody() -> None:
    task = ReportsCommits(task_id="refresh", outlets=[OURS])
    task.hide_assets()
    assert report_commits({"outlet_events": OutletEventAccessors()}, task, []) == []
    assert task.outlets == []


class Changes:
    """What Airflow hears of the commits of a task whose partitions have events, by the dates that each commit replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *commits: list[str], most: int = 3, active: Asset = OURS) -> None:
        answer = AssetResult(name=active.name, uri=active.uri, group=active.group)
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: answer), raising=False)
        task = ReportsCommits(task_id="refresh", outlets=[OURS])
        task.most_partition_events = most
        versions = [
            (Version(number, f"t{number}", "s", TICK, TICK, partitions=PartitionSet.of({"ds": ds} for ds in days)), None)
            for number, days in enumerate(commits)
        ]
        events = OutletEventAccessors()
        context: Any = {"outlet_events": events}
        *earlier, (version, _) = versions
        self.report = report_commit(context, task, version, None, TICK, earlier)
        self.outlets = task.outlets
        self.keys = events[OURS].partition_keys
        self.extra = events[OURS].extra
        self.plain = [event.extra["refresh"] for event in events[OTHER_EVENTS].asset_alias_events]


@since(3, 3)
def test_each_changed_partition_has_an_event_beside_that_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Changes(monkeypatch, ["2024-01-01", "2024-01-02"], ["2024-01-02", "2024-01-03"])
    assert heard.keys == {"ds=2024-01-01", "ds=2024-01-02", "ds=2024-01-03"}
    assert heard.extra == {"versions": {"ds=2024-01-01": "t0", "ds=2024-01-02": "t1", "ds=2024-01-03": "t1"}}
    assert heard.plain == ["t0", "t1"], "each commit has its event too, or DAGs that depend on the table would not run"
    assert set(heard.outlets) == {OTHER_EVENTS, OURS}
    assert "partitions_total" not in heard.report


@since(3, 3)
@pytest.mark.parametrize(
    ("commits", "total"),
    [([["2024-01-01", "2024-01-02"], ["2024-01-03", "2024-01-04"]], 4), ([["2024-01-01"], []], None)],
    ids=["too-many", "complete-table"],
)
def test_many_partitions_have_no_events_and_that_of_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch, commits: list[list[str]], total: int | None
) -> None:
    heard = Changes(monkeypatch, *commits)
    assert (heard.keys, heard.report["partitions_total"], heard.extra) == (set(), total, heard.report)
    assert (set(heard.outlets), heard.plain) == ({OTHER_EVENTS, OURS}, ["t0"])


@since(3, 3)
def test_partitions_of_an_asset_that_airflow_does_not_take_have_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Changes(monkeypatch, ["2024-01-01"], active=OTHER)
    assert (heard.keys, heard.report["partitions_total"]) == (set(), 1)
    assert (heard.outlets, heard.plain) == ([OTHER_EVENTS], ["t0", "t0"])


@since(3, 3)
def test_a_key_that_is_too_long_for_airflow_leaves_the_event_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Changes(monkeypatch, ["x" * 300, "2024-01-01"])
    assert (heard.keys, heard.report["partitions_total"]) == (set(), 2)
