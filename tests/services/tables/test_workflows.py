"""The workflows of tables at their schedulers: with the table suspended, resumed, deployed and dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_dynamic_tables.catalog.values import Asked, JobState
from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.exceptions import SchedulerUnavailableError, TableNotFoundError
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.lifecycle.suspending import note_failure, resume, suspend
from airflow_dynamic_tables.services.tables.workflows import schedule_workflow
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.schedulers import airflow as of_airflow
from tests.support.schedulers import dolphin as of_dolphin

DAG = NUMBERS.workflow_id


@pytest.fixture
def airflow() -> Iterator[of_airflow.StandIn]:
    with of_airflow.stand_in() as stand_in:
        stand_in.add(DAG, "DynamicTableRefreshOperator")
        yield stand_in


@pytest.fixture
def dolphin() -> Iterator[of_dolphin.StandIn]:
    with of_dolphin.stand_in("3.3") as stand_in:
        yield stand_in


def _reaching(bench: VersionBench, connections: Connections) -> Workspace:
    """The workspace of an installation that has these connections."""
    return replace(bench.workspace, settings=replace(bench.workspace.settings, connections=connections))


def _handler(workspace: Workspace) -> dict[str, str]:
    return dict(workspace.catalog("lake").get_table(NUMBERS.path).refresh_handler.job_detail)


def test_the_dag_of_a_suspended_table_is_paused_until_it_is_resumed(
    version_bench: VersionBench, airflow: of_airflow.StandIn
) -> None:
    workspace = _reaching(version_bench, airflow.connections)
    ensure(workspace, version_bench.definitions.tables[NUMBERS])
    assert suspend(workspace, NUMBERS).workflow == f"The DAG {DAG} is paused."
    assert airflow.paused[DAG]
    assert resume(workspace, NUMBERS).workflow == f"The DAG {DAG} is unpaused."
    assert not airflow.paused[DAG]


def test_failures_in_a_row_pause_the_dag(version_bench: VersionBench, airflow: of_airflow.StandIn) -> None:
    workspace = _reaching(version_bench, airflow.connections)
    table = replace(version_bench.definitions.tables[NUMBERS], suspend_after_failures=2)
    for run in ("first", "second"):
        change = note_failure(workspace, table, run, "boom")
    assert (change.after, airflow.paused[DAG]) == (JobState.SUSPENDED, True)


def test_where_airflow_is_out_of_reach_the_state_is_kept_and_it_is_said(
    version_bench: VersionBench, airflow: of_airflow.StandIn
) -> None:
    unknown = _reaching(version_bench, version_bench.workspace.settings.connections)
    ensure(unknown, version_bench.definitions.tables[NUMBERS])
    said = suspend(unknown, NUMBERS).workflow
    assert said.startswith(f"The table is suspended. Its workflow {DAG} in airflow is not, because: Airflow connection ")
    assert "'dynamic_tables_airflow' is not set" in said
    assert "set AIRFLOW_CONN_DYNAMIC_TABLES_AIRFLOW" in said
    assert unknown.dynamic_table(NUMBERS).refresh_handler.job_state is JobState.SUSPENDED

    airflow.paused[DAG] = True
    down = _reaching(version_bench, lambda name: replace(airflow.connections(name), host="http://127.0.0.1:9"))
    assert "cannot be reached" in resume(down, NUMBERS).workflow
    assert down.dynamic_table(NUMBERS).refresh_handler.job_state is JobState.INITIALIZING
    # Once more, when it is back.
    assert resume(_reaching(version_bench, airflow.connections), NUMBERS).workflow == f"The DAG {DAG} is unpaused."
    assert not airflow.paused[DAG]


def test_another_scheduler_has_the_table_refreshed(version_bench: VersionBench, dolphin: of_dolphin.StandIn) -> None:
    workspace = _reaching(version_bench, dolphin.connections)
    table = replace(version_bench.definitions.tables[NUMBERS], scheduler="dolphinscheduler")
    ensure(workspace, table)
    assert f"DolphinScheduler runs the workflow {DAG}" in schedule_workflow(workspace, table)
    handler = _handler(workspace)
    assert (handler["schedulerType"], handler["workflowCode"]) == ("dolphinscheduler", str(*dolphin.workflows))
    # A refresh registers its table, too, and a suspended one keeps its handler.
    ensure(workspace, replace(table, comment="new"), Asked.FORCED_REFRESH)
    assert "is offline" in suspend(workspace, NUMBERS, "on holiday").workflow
    assert _handler(workspace) == {**handler, "suspendedBecause": "on holiday"}
    assert schedule_workflow(workspace, table) == "", "a suspended table waits until it is resumed"
    assert "DolphinScheduler runs" in resume(workspace, NUMBERS).workflow
    assert _handler(workspace) == handler
    assert [item["releaseState"] for item in dolphin.schedules.values()] == ["ONLINE"]


def test_what_changed_while_it_was_suspended_holds_when_it_is_resumed(
    version_bench: VersionBench, dolphin: of_dolphin.StandIn
) -> None:
    workspace = _reaching(version_bench, dolphin.connections)
    table = replace(version_bench.definitions.tables[NUMBERS], scheduler="dolphinscheduler")
    ensure(workspace, table)
    schedule_workflow(workspace, table)
    suspend(workspace, NUMBERS)
    ensure(workspace, replace(table, cron="30 6 * * *"))
    dolphin.workflows.clear()
    dolphin.schedules.clear()
    resume(workspace, NUMBERS)
    [schedule] = dolphin.schedules.values()
    [workflow] = dolphin.workflows.values()
    assert (schedule["crontab"], schedule["releaseState"]) == ("0 30 6 * * ? *", "ONLINE")
    assert json.loads(workflow["tasks"])[0]["name"] == "refresh"


def test_a_table_that_goes_back_to_airflow_leaves_no_workflow_behind(
    version_bench: VersionBench, dolphin: of_dolphin.StandIn
) -> None:
    workspace = _reaching(version_bench, dolphin.connections)
    table = version_bench.definitions.tables[NUMBERS]
    elsewhere = replace(table, scheduler="dolphinscheduler")
    ensure(workspace, elsewhere)
    schedule_workflow(workspace, elsewhere)
    ensure(workspace, table)  # a refresh in Airflow, before somebody applies the definitions
    assert _handler(workspace)["schedulerType"] == "dolphinscheduler"
    assert schedule_workflow(workspace, table) == ""
    assert dolphin.workflows == {}
    assert _handler(workspace) == {"schedulerType": "airflow", "endpoint": "", "workflowId": DAG}


def test_a_table_of_another_name_leaves_no_workflow_behind(version_bench: VersionBench, dolphin: of_dolphin.StandIn) -> None:
    workspace = _reaching(version_bench, dolphin.connections)
    table = replace(version_bench.definitions.tables[NUMBERS], scheduler="dolphinscheduler")
    for prefix in ("old_", "new_"):
        ensure(workspace, replace(table, dag_id_prefix=prefix))
        schedule_workflow(workspace, replace(table, dag_id_prefix=prefix))
    [workflow] = dolphin.workflows.values()
    assert workflow["name"] == f"new_{DAG}"


def test_a_table_is_dropped_with_its_workflow_or_not_at_all(version_bench: VersionBench, dolphin: of_dolphin.StandIn) -> None:
    workspace = _reaching(version_bench, dolphin.connections)
    table = replace(version_bench.definitions.tables[NUMBERS], scheduler="dolphinscheduler")
    ensure(workspace, table)
    schedule_workflow(workspace, table)
    down = _reaching(version_bench, lambda name: replace(dolphin.connections(name), host="http://127.0.0.1:9"))
    with pytest.raises(SchedulerUnavailableError):
        drop(down, NUMBERS)
    assert workspace.dynamic_table(NUMBERS).refresh_handler.job_state is JobState.INITIALIZING
    drop(workspace, NUMBERS)
    assert dolphin.workflows == {}
    with pytest.raises(TableNotFoundError):
        workspace.dynamic_table(NUMBERS)
