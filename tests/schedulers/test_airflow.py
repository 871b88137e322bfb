"""Airflow as the scheduler of workflows."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.schedulers.airflow import AirflowScheduler
from airflow_dynamic_tables.schedulers.base import Workflow, open_scheduler
from tests.support.schedulers.airflow import StandIn

HANDLER = {"schedulerType": "airflow", "endpoint": "", "workflowId": "d"}
REFRESH = "DynamicTableRefreshOperator"


def _scheduler(airflow: StandIn) -> AirflowScheduler:
    scheduler = open_scheduler("airflow", airflow.connections)
    assert isinstance(scheduler, AirflowScheduler)
    return scheduler


def test_the_dag_of_one_table_is_paused_and_unpaused(airflow: StandIn) -> None:
    airflow.add("d", REFRESH, "DecideOperator")
    with _scheduler(airflow) as scheduler:
        for _ in range(2):
            assert scheduler.suspend(HANDLER).told == "The DAG d is paused."
            assert airflow.paused["d"]
        assert scheduler.resume(HANDLER).told == "The DAG d is unpaused."
    assert not airflow.paused["d"]


def test_a_dag_of_several_tables_runs_on(airflow: StandIn) -> None:
    airflow.add("d", REFRESH, REFRESH, REFRESH)
    with _scheduler(airflow) as scheduler:
        assert scheduler.suspend(HANDLER).told == "The DAG d is not paused: it refreshes 2 tables more."
        assert scheduler.delete(HANDLER).told == "The DAG d stays: it refreshes 2 tables more."
    assert airflow.paused == {"d": False}


def test_creating_says_whether_airflow_has_the_dag(airflow: StandIn) -> None:
    workflow = Workflow(TableIdentifier.parse("lake.sales.orders"), "d", "0 0 * * *", "UTC")
    with _scheduler(airflow) as scheduler:
        assert "does not have the DAG d yet" in scheduler.create(workflow).told
        airflow.add("d", REFRESH, is_paused=True)
        outcome = scheduler.create(workflow)
        assert outcome.told == "Airflow has the DAG d, which is paused."
        assert outcome.handler == {**HANDLER, "endpoint": airflow.server.url}
        airflow.stale.add("d")
        assert "does not have the DAG d yet" in scheduler.create(workflow).told


def test_deleting_takes_the_record_of_the_dag_away(airflow: StandIn) -> None:
    airflow.add("d", REFRESH)
    with _scheduler(airflow) as scheduler:
        assert scheduler.delete(HANDLER).told == "Airflow has forgotten the DAG d and its runs."
        assert scheduler.delete(HANDLER).told == "Airflow has no DAG d."


@pytest.mark.large
def test_which_dags_are_paused_is_one_question_for_each_hundred(airflow: StandIn) -> None:
    for number in range(250):
        airflow.add(f"d{number}", REFRESH, is_paused=number % 100 == 0)
    with _scheduler(airflow) as scheduler:
        assert scheduler.paused({"d0", "d1", "none"}) == {"d0": True, "d1": False}
        airflow.server.requests.clear()
        paused = scheduler.paused({f"d{number}" for number in range(1, 300)})
    assert (len(paused), [dag_id for dag_id, is_paused in sorted(paused.items()) if is_paused]) == (249, ["d100", "d200"])
    assert airflow.server.operations == ["get_dags"] * 3
