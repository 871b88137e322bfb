"""The task of the maintenance: what no task told of, it tells, by events that Airflow takes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, AssetResult, GetAssetByUri, GetAssetEventByAsset
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.maintenance import SweepOperator
from airflow_dynamic_tables.operators.reporting import LATE_EVENTS
from airflow_dynamic_tables.operators.run_arguments import read_request
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.airflow_version import since
from tests.support.pyarrow_job import write_days, write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)
RUN = "manual__2024-01-02T00:00:00+00:00"


class Airflow:
    """What Airflow knows, as far as a task may ask: events of assets, and states of tasks."""

    def __init__(self) -> None:
        self.events: list[AssetEventResponse] = []
        self.states: dict[str, dict[str, str]] = {}
        self.keys: dict[str, Any] = {}

    def send(self, msg: GetAssetEventByAsset | GetAssetByUri) -> AssetEventsResult | AssetResult:
        if isinstance(msg, GetAssetByUri):
            return AssetResult(name=str(msg.uri), uri=str(msg.uri), group="dynamic-table")
        return AssetEventsResult(asset_events=[event for event in self.events if event.asset.uri == msg.uri])

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, Any]:
        assert dag_id == "dynamic_table__default__default__t"
        return {run_id: states for run_id, states in self.states.items() if run_id in run_ids}

    def maintain(self, definitions: Path | None = None) -> dict[str, Any]:
        operator = SweepOperator(task_id="sweep", definitions_path=definitions)
        assert operator.outlets == [LATE_EVENTS]
        outlet_events = OutletEventAccessors()
        context: Any = {"ti": SimpleNamespace(get_task_states=self.get_task_states), "outlet_events": outlet_events}
        report = operator.execute(context)
        for event in outlet_events[LATE_EVENTS].asset_alias_events:
            self.take(event.dest_asset_key.name, event.dest_asset_key.uri, event.extra)
        for asset in (outlet for outlet in operator.outlets if isinstance(outlet, Asset)):
            self.keys = dict.fromkeys(outlet_events[asset].partition_keys, outlet_events[asset].extra)
        return report

    def take(self, name: str, uri: str, extra: dict[str, Any]) -> None:
        asset = AssetResponse(name=name, uri=uri, group="dynamic-table")
        event = AssetEventResponse(id=len(self.events), timestamp=TICK, extra=extra, asset=asset, created_dagruns=[])
        self.events.append(event)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return airflow


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    with open_workspace(embedded_settings(os.environ)) as opened:
        yield opened


@pytest.fixture
def killed(tmp_path: Path, workspace: Workspace) -> str:
    return refresh(tmp_path, workspace, "{name: t, freshness: 1 day, query: SELECT 1 AS x}", write_numbers)


def refresh(folder: Path, workspace: Workspace, declared: str, job: Callable[[RefreshPlan], None]) -> str:
    """Refresh a table in a task that does not tell of it, and return the token."""
    path = folder / "tables.yaml"
    path.write_text(f"dynamic_tables:\n- {declared}\n")
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    operator = DynamicTableRefreshOperator(task_id="refresh", table=table, definitions=definitions)
    ti = SimpleNamespace(id="token", dag_id=table.identifier.workflow_id, run_id=RUN, task_id="refresh")
    request = read_request({"ti": ti, "logical_date": TICK}, operator.table, operator.sources)
    run(workspace, request, job)
    return request.token


def test_a_version_that_no_task_told_of_gets_one_event(airflow: Airflow, killed: str) -> None:
    airflow.states[RUN] = {"refresh": "failed"}
    assert airflow.maintain()["reported"] == [killed]
    (event,) = airflow.events
    assert (event.asset.name, event.asset.uri) == ("dynamic-table://default/default/t", "dynamic-table://default/default/t")
    assert event.extra == {"version": 1, "rows": 3, "partitions": [], "schedule_time": TICK.isoformat(), "refresh": killed}
    assert airflow.maintain()["reported"] == []


@since(3, 3)
def test_its_partitions_get_theirs_too(airflow: Airflow, tmp_path: Path, workspace: Workspace) -> None:
    declared = """{name: t, freshness: 1 day, initial: latest, partitioned_by: [ds], partition_events: changed,
    query: "SELECT '2024-01-01' AS ds, 1 AS n",
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}}"""
    token = refresh(tmp_path, workspace, declared, lambda plan: write_days(plan, {"2024-01-01": [1]}))
    airflow.states[RUN] = {"refresh": "failed"}
    assert airflow.maintain()["reported"] == [token]
    assert airflow.keys == {"ds=2024-01-01": {"versions": {"ds=2024-01-01": token}}}
    assert [event.extra["partitions"] for event in airflow.events] == [["ds=2024-01-01"]]


def test_an_event_of_the_task_itself_is_enough(airflow: Airflow, killed: str) -> None:
    airflow.take("dynamic-table://default/default/t", "dynamic-table://default/default/t", {"refresh": killed})
    airflow.take("dynamic-table://default/default/t", "dynamic-table://default/default/t", {"made": "by hand"})
    airflow.states[RUN] = {"refresh": "success"}
    assert airflow.maintain()["reported"] == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    "states",
    [{}, {"refresh": "running"}, {"refresh": "up_for_retry"}, {"refresh": "failed", "decide": "deferred"}, {"refresh": None}],
)
@pytest.mark.usefixtures("killed")
def test_a_run_that_goes_on_or_is_another_airflows_is_left_alone(airflow: Airflow, states: dict[str, str]) -> None:
    if states:
        airflow.states[RUN] = states
    assert airflow.maintain()["reported"] == []


@pytest.mark.usefixtures("killed")
def test_tables_that_nobody_declares_any_more(airflow: Airflow, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tables.yaml"
    assert airflow.maintain(path)["undeclared"] == []
    path.write_text("dynamic_tables:\n- {name: other, freshness: 1 day, query: SELECT 1 AS x}\n")
    assert airflow.maintain(path)["undeclared"] == ["default.default.t"]
    assert "It keeps its rows, which are not refreshed, until: dynamic-tables drop default.default.t" in caplog.text
    path.write_text("dynamic_tables:\n- {name: other, freshness: 1 dya, query: SELECT 1 AS x}\n")
    assert airflow.maintain(path)["undeclared"] is None, "a mistake may hide its declaration"
    assert airflow.maintain()["undeclared"] is None
