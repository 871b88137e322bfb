"""What a run is for that updates of assets triggered: its time, and the partitions that they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, GetAssetEventByAsset

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.operators.run_arguments import OF_OTHERS, OF_TABLE, Runs, read_request
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, action_of, requested_partitions

FIRST = datetime(2024, 1, 3, 23, 59, 30, 123, tzinfo=UTC)
"""The time of the first update, of which Airflow makes the run."""
BEGIN = FIRST + timedelta(minutes=2)
"""When the run began, after other updates."""

PARENT = dynamic_table_asset("lake.crm.parent")


@pytest.fixture
def table(tmp_path: Path) -> DynamicTable:
    path = tmp_path / "tables.yaml"
    path.write_text(
        """
defaults: {catalog: lake, database: crm}
dynamic_tables:
- {name: parent, freshness: 1 day, query: SELECT 1 AS x}
- {name: whole, freshness: 1 day, on: [parent], query: SELECT 1 AS x}
- name: daily
  freshness: 1 day
  on: [parent, s3://bucket/orders]
  partitioned_by: [ds, country]
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
  query: SELECT 1 AS x, '' AS ds, '' AS country
"""
    )
    return _of("daily", path)


def _of(name: str, path: Path) -> DynamicTable:
    table = load_definitions(path, cache=Cache(None)).table(name)
    assert table is not None
    return table


def requested(
    table: DynamicTable,
    monkeypatch: pytest.MonkeyPatch,
    consumed: list[str],
    later: list[str],
    runs: Runs = OF_TABLE,
    **run: Any,
) -> RefreshRequest:
    """The request of a run of whose updates Airflow lists some, and others that came until the run began."""

    def send(msg: GetAssetEventByAsset) -> AssetEventsResult:
        assert (msg.uri, msg.after) == (PARENT.uri, FIRST)
        asset = {"name": PARENT.name, "uri": PARENT.uri, "group": "", "extra": {}}
        event = {"id": 1, "timestamp": BEGIN, "asset": asset, "created_dagruns": [], "extra": {"partitions": later}}
        return AssetEventsResult.model_validate({"asset_events": [event]})

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    told = {"conf": {}, "run_type": "asset_triggered", "run_after": FIRST, "start_date": BEGIN, **run}
    context = {
        "dag_run": SimpleNamespace(**told),
        "ti": SimpleNamespace(id="t1", dag_id="dag", run_id="run", task_id="refresh"),
        "triggering_asset_events": {PARENT: [SimpleNamespace(extra={"partitions": consumed}), SimpleNamespace(extra=None)]},
        "params": {},
    }
    return read_request(context, table, {}, runs)


def days(*texts: str) -> PartitionSet:
    return PartitionSet.of({"ds": text} for text in texts)


def test_it_is_for_the_time_when_it_began(table: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested(table, monkeypatch, [], []).schedule_time == BEGIN
    assert requested(table, monkeypatch, [], [], start_date=None).schedule_time == FIRST


def test_that_of_a_dag_of_ones_own_is_for_that_time_too(table: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert requested(table, monkeypatch, [], [], runs=OF_OTHERS).schedule_time == BEGIN


def test_it_refreshes_what_is_due_from_its_first_update_to_its_begin(
    table: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requested_partitions(requested(table, monkeypatch, [], [])) == days("2024-01-02", "2024-01-03")


def test_it_refreshes_what_the_updates_name_too(table: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    request = requested(table, monkeypatch, ["ds=2023-12-01/country=DE", "ds=2023-12-01/country=FR"], ["ds=2023-12-02"])
    partitions = requested_partitions(request)
    assert partitions == days("2024-01-02", "2024-01-03", "2023-12-01", "2023-12-02")
    assert partitions.predicate, "all by the same keys"
    assert action_of(request, partitions, None)[1].code == "UPDATED"


def test_names_that_are_no_partitions_of_the_table_are_left_out(
    table: DynamicTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    request = requested(table, monkeypatch, ["hh=03", "ds=2024-13-45", "nonsense"], ["ds=2023-12-02"])
    assert requested_partitions(request) == days("2024-01-02", "2024-01-03", "2023-12-02")
    assert "An update names ds=2024-13-45, which is no partition of this table by its time keys." in caplog.text


def test_a_whole_table_asks_nobody(table: DynamicTable, monkeypatch: pytest.MonkeyPatch) -> None:
    request = requested(_of("whole", table.path), monkeypatch, ["ds=2023-12-01"], ["ds=2023-12-02"])
    assert requested_partitions(request).is_whole


@pytest.mark.parametrize("run_type", ["scheduled", "manual", "backfill"])
def test_another_run_asks_nobody(table: DynamicTable, monkeypatch: pytest.MonkeyPatch, run_type: str) -> None:
    request = requested(table, monkeypatch, ["ds=2023-12-01"], [], run_type=run_type)
    assert (request.updated, request.schedule_time) == (None, FIRST)
