"""The client of Airflow's REST API, against a server that holds every request against Airflow's own description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError, WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.airflow import AirflowApi, Dag, DagRun
from airflow_dynamic_tables.schedulers.http import address_of
from tests.support.schedulers.airflow import StandIn


@pytest.fixture
def api(airflow: StandIn) -> Iterator[AirflowApi]:
    api = _api(airflow)
    yield api
    api.close()


def _api(airflow: StandIn, connection: Connection | None = None) -> AirflowApi:
    connection = connection or airflow.connections("dynamic_tables_airflow")
    return AirflowApi(address_of("Airflow", "dynamic_tables_airflow", connection), connection)


def test_a_dag_is_paused_and_unpaused(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("dynamic_table__a")
    api.set_paused("dynamic_table__a", True)
    assert api.dag("dynamic_table__a") == Dag("dynamic_table__a", is_paused=True, is_stale=False)
    api.set_paused("dynamic_table__a", False)
    assert not airflow.paused["dynamic_table__a"]
    assert airflow.server.operations == ["log_in", "patch_dag", "get_dag", "patch_dag"]


def test_an_id_goes_over_as_it_is(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("straße.tägliche~v2/1?x")
    api.set_paused("straße.tägliche~v2/1?x", True)
    assert airflow.paused["straße.tägliche~v2/1?x"]


def test_a_run_that_is_triggered_twice_is_one_run(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("d")
    first = api.trigger("d", {"full_refresh": True}, "mine")
    assert api.trigger("d", {"full_refresh": True}, "mine") == first == api.run("d", "mine") == DagRun("mine", "queued")
    assert api.trigger("d", {}).run_id == "manual__1"
    assert api.run("d", "no-such") is None


def test_a_dag_that_is_not_there(api: AirflowApi) -> None:
    assert api.dag("d") is None
    assert not api.delete("d")
    for call in (lambda: api.set_paused("d", True), lambda: api.trigger("d", {}), lambda: api.refreshes("d")):
        with pytest.raises(WorkflowNotFoundError, match="has no DAG d; it makes one when it has read the definitions"):
            call()


def test_its_record_is_deleted(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("d")
    assert api.delete("d")
    assert airflow.paused == {}


def test_wrong_credentials(airflow: StandIn) -> None:
    wrong = replace(airflow.connections("dynamic_tables_airflow"), password="0ther-w0rd")
    with pytest.raises(ConfigurationError, match="check its login and password") as error:
        _api(airflow, wrong).dag("d")
    assert "Invalid credentials" in str(error.value)
    assert "0ther-w0rd" not in str(error.value)


def test_a_token_that_is_repeated_is_hidden(airflow: StandIn) -> None:
    given = replace(airflow.connections("dynamic_tables_airflow"), login=None, password=None, extra={"token": "w0rn-out"})
    with pytest.raises(ConfigurationError, match=r"Invalid token Bearer \*\*\*; check its login and password"):
        _api(airflow, given).dag("d")


def test_a_token_that_no_header_holds(airflow: StandIn) -> None:
    given = replace(airflow.connections("dynamic_tables_airflow"), extra={"token": "a\nb"})
    with pytest.raises(ConfigurationError, match="has signs that no token has; check it"):
        _api(airflow, given).dag("d")


def test_without_credentials_it_asks_for_what_everybody_gets(airflow: StandIn) -> None:
    nobody = replace(airflow.connections("dynamic_tables_airflow"), login=None, password=None)
    with pytest.raises(ConfigurationError):
        _api(airflow, nobody).dag("d")
    assert airflow.server.operations == ["log_in_as_everybody"]


def test_no_right(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("d")
    airflow.forbidden.add("patch_dag")
    with pytest.raises(ConfigurationError, match="does not let connection 'dynamic_tables_airflow' pause the DAG d: Forbidden"):
        api.set_paused("d", True)


def test_an_address_that_leads_elsewhere_is_no_missing_dag(airflow: StandIn) -> None:
    base = airflow.connections("dynamic_tables_airflow")
    elsewhere = replace(base, host=f"{base.host}/wrong", extra={"token": "t0ken-of-me"})
    with pytest.raises(SchedulerError, match="check that connection 'dynamic_tables_airflow' leads to Airflow"):
        _api(airflow, elsewhere).dag("d")
    airflow.server.misfits.clear()


def test_it_only_counts_tasks_that_refresh(airflow: StandIn, api: AirflowApi) -> None:
    airflow.add("d", "DynamicTableRefreshOperator", "DecideOperator", "ContinuousRefreshOperator", "BashOperator")
    assert api.refreshes("d") == 2
