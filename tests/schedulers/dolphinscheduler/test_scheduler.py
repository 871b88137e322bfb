"""DolphinScheduler as the scheduler of workflows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_dynamic_tables.api.questions import SchedulerRefresh
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    SchedulerError,
    SchedulerUnavailableError,
    UnsupportedScheduleError,
    WorkflowNotFoundError,
)
from airflow_dynamic_tables.schedulers.base import Outcome, Workflow, WorkflowScheduler, open_scheduler
from tests.support.schedulers.dolphin import PROJECT, StandIn

ORDERS = Workflow(TableIdentifier.parse("lake.sales.orders"), "dynamic_table__lake__sales__orders", "0 0 * * 1", "Europe/Berlin")


def _scheduler(dolphin: StandIn) -> WorkflowScheduler:
    return open_scheduler("dolphinscheduler", dolphin.connections)


def _create(dolphin: StandIn, workflow: Workflow = ORDERS) -> Outcome:
    with _scheduler(dolphin) as scheduler:
        return scheduler.create(workflow)


def _states(dolphin: StandIn) -> list[tuple[str, str]]:
    pairs = zip(dolphin.workflows.values(), dolphin.schedules.values(), strict=True)
    return [(workflow["releaseState"], schedule["releaseState"]) for workflow, schedule in pairs]


def test_a_workflow_asks_the_gateway_at_every_tick(dolphin: StandIn) -> None:
    outcome = _create(dolphin)
    [(code, workflow)] = dolphin.workflows.items()
    [schedule] = dolphin.schedules.values()
    [task] = json.loads(workflow["tasks"])
    assert (workflow["name"], _states(dolphin)) == (ORDERS.workflow_id, [("ONLINE", "ONLINE")])
    assert (schedule["crontab"], schedule["timezoneId"]) == ("0 0 0 ? * 2 *", "Europe/Berlin")
    assert (task["taskParams"]["httpMethod"], task["taskParams"]["url"]) == (
        "POST",
        "https://gateway.example.org/v3/dynamic-tables/refresh",
    )
    assert json.loads(task["taskParams"]["httpBody"]) == {
        "tables": "lake.sales.orders",
        "scheduleTime": "$[yyyy-MM-dd HH:mm:ss]",
        "isPeriodic": "true",
    }
    [header] = task["taskParams"]["httpParams"]
    assert (header["prop"], header["value"]) == ("Authorization", "Bearer ${dynamic_tables_token}")
    assert outcome.handler == {
        "schedulerType": "dolphinscheduler",
        "endpoint": dolphin.server.url,
        "workflowId": ORDERS.workflow_id,
        "projectCode": str(PROJECT),
        "workflowCode": str(code),
    }


def test_the_gateway_understands_what_the_task_sends(dolphin: StandIn) -> None:
    _create(dolphin)
    [workflow] = dolphin.workflows.values()
    body = json.loads(workflow["tasks"])[0]["taskParams"]["httpBody"].replace("$[yyyy-MM-dd HH:mm:ss]", "2024-01-01 06:00:00")
    asked = SchedulerRefresh.model_validate_json(body)
    assert (asked.tables, asked.schedule_time, asked.is_periodic) == (["lake.sales.orders"], "2024-01-01T06:00:00", True)


def test_the_same_again_changes_nothing(dolphin: StandIn) -> None:
    first = _create(dolphin)
    dolphin.server.requests.clear()
    assert _create(dolphin) == first
    assert all(operation.startswith("query") for operation in dolphin.server.operations)


def test_another_schedule_is_taken_over(dolphin: StandIn) -> None:
    _create(dolphin)
    _create(dolphin, replace(ORDERS, cron="*/5 * * * *"))
    [schedule] = dolphin.schedules.values()
    assert schedule["crontab"] == "0 0,5,10,15,20,25,30,35,40,45,50,55 * * * ? *"
    assert _states(dolphin) == [("ONLINE", "ONLINE")]


def test_what_somebody_changed_there_is_changed_back(dolphin: StandIn) -> None:
    _create(dolphin)
    [workflow] = dolphin.workflows.values()
    before = json.loads(workflow["tasks"])
    workflow["tasks"] = workflow["tasks"].replace("gateway.example.org", "elsewhere.example.org")
    _create(dolphin)
    assert json.loads(workflow["tasks"]) == before
    assert _states(dolphin) == [("ONLINE", "ONLINE")]


def test_suspended_and_resumed(dolphin: StandIn) -> None:
    handler = _create(dolphin).handler
    with _scheduler(dolphin) as scheduler:
        for _ in range(2):
            assert scheduler.suspend(handler).told.endswith("is offline.")
            assert _states(dolphin) == [("OFFLINE", "OFFLINE")]
        for _ in range(2):
            assert scheduler.resume(handler).told.endswith("is online.")
            assert _states(dolphin) == [("ONLINE", "ONLINE")]


def test_deleted(dolphin: StandIn) -> None:
    handler = _create(dolphin).handler
    with _scheduler(dolphin) as scheduler:
        assert "has deleted the workflow" in scheduler.delete(handler).told
        assert (dolphin.workflows, dolphin.schedules) == ({}, {})
        assert "has no workflow" in scheduler.delete(handler).told
        for call in (scheduler.suspend, scheduler.resume):
            with pytest.raises(WorkflowNotFoundError, match="does not exist"):
                call(handler)


def test_a_kill_between_any_two_steps_is_made_good(dolphin: StandIn) -> None:
    wanted = _create(dolphin).handler
    steps = len(dolphin.server.requests)
    assert steps > 5
    for dies_at in range(1, steps + 1):
        for kept in (dolphin.projects, dolphin.workflows, dolphin.schedules, dolphin.server.requests):
            kept.clear()
        dolphin.dies_at = dies_at
        with pytest.raises(SchedulerUnavailableError):
            _create(dolphin)
        dolphin.dies_at = None
        outcome = _create(dolphin)
        assert outcome.handler.keys() == wanted.keys()
        assert list(map(str, dolphin.workflows)) == [outcome.handler["workflowCode"]]
        assert (_states(dolphin), len(dolphin.projects)) == ([("ONLINE", "ONLINE")], 1)


def test_names_that_contain_the_name_are_others(dolphin: StandIn) -> None:
    dolphin.projects = {1: "dynamic_tables_of_others"}
    _create(dolphin, replace(ORDERS, workflow_id=f"{ORDERS.workflow_id}_archive"))
    _create(dolphin)
    assert dolphin.projects == {1: "dynamic_tables_of_others", PROJECT + 1: "dynamic_tables"}
    assert len(dolphin.workflows) == 2


def test_the_name_is_found_on_a_later_page(dolphin: StandIn) -> None:
    dolphin.projects = {number: f"dynamic_tables_{number}" for number in range(1, 250)} | {PROJECT: "dynamic_tables"}
    _create(dolphin)
    assert len(dolphin.projects) == 250


def test_a_project_that_the_user_does_not_see(dolphin: StandIn) -> None:
    dolphin.projects = {1: "dynamic_tables"}
    dolphin.hidden = {"dynamic_tables"}
    with pytest.raises(SchedulerError, match="did not create the project dynamic_tables: project dynamic_tables already exists"):
        _create(dolphin)


def test_a_schedule_that_quartz_does_not_know(dolphin: StandIn) -> None:
    with pytest.raises(UnsupportedScheduleError, match=r"cannot have lake.sales.orders refreshed: .* Quartz"):
        _create(dolphin, replace(ORDERS, cron="0 0 1 * 1"))
    assert dolphin.server.requests == []


def test_a_workflow_that_was_never_created(dolphin: StandIn) -> None:
    with (
        _scheduler(dolphin) as scheduler,
        pytest.raises(WorkflowNotFoundError, match="was never asked to create the workflow"),
    ):
        scheduler.suspend({"schedulerType": "dolphinscheduler", "endpoint": "", "workflowId": "w"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": None}, "has no token"),
        ({"extra": {"version": "2.0"}}, "has a 'version' '2.0'; write 3.2 or 3.3"),
        ({"extra": {"gateway": "gateway:8085"}}, "does not say where the REST gateway is"),
        ({"host": None}, "has no host"),
    ],
)
def test_wrong_connections(dolphin: StandIn, change: dict[str, Any], said: str) -> None:
    connection = replace(dolphin.connections("dynamic_tables_dolphinscheduler"), **change)
    with pytest.raises(ConfigurationError, match=said):
        open_scheduler("dolphinscheduler", lambda _: connection)


def test_a_wrong_token(dolphin: StandIn) -> None:
    wrong = replace(dolphin.connections("dynamic_tables_dolphinscheduler"), password="0ther")
    with open_scheduler("dolphinscheduler", lambda _: wrong) as scheduler, pytest.raises(ConfigurationError, match="not accept"):
        scheduler.create(ORDERS)
