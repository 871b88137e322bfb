"""Events of OpenLineage: which commit is in which event, and what they say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.openlineage.utils.utils import translate_airflow_asset
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.providers.openlineage.plugins.listener import get_openlineage_listener
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, AssetResult, GetAssetByUri
from openlineage.client import OpenLineageClient
from openlineage.client.transport.noop import NoopConfig, NoopTransport

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.operators import decide
from airflow_dynamic_tables.operators.decide import PUBLISH, DecideOperator
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.maintenance import SweepOperator
from airflow_dynamic_tables.operators.one_off.create_table_as import CreateTableAsOperator
from airflow_dynamic_tables.operators.verification import VerifyOperator
from airflow_dynamic_tables.services.refresh import catching_up
from tests.operators.test_dynamic_table_refresh import TICK, context
from tests.support.openlineage import as_written, check_event
from tests.support.pyarrow_job import write_days, write_numbers

TABLES = """
defaults: {spark: {conn_id: local}}
dynamic_tables:
- {name: parent, freshness: 1 day, query: SELECT 1 AS x}
- {name: child, freshness: 1 day, query: SELECT x + 1 AS x FROM parent, expectations: [{row_count: {max: 3}}]}
- name: strict
  freshness: 1 day
  query: SELECT x FROM parent
  expectations: [{row_count: {max: 2}, action: quarantine}]
- name: hours
  freshness: 1 hour
  partitioned_by: [ds]
  initial: latest
  skip_unchanged: false
  options: {partition.fields.ds.date-formatter: yyyy-MM-dd-HH}
  query: SELECT '1' AS ds, 1 AS n
"""


@pytest.fixture
def events(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the provider's transport."""
    folder = home / "events"
    folder.mkdir()
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(folder / "event"))
    listener = get_openlineage_listener()
    monkeypatch.setattr(listener, "adapter", OpenLineageAdapter())
    return folder


def emitted(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text()) for file in sorted(folder.iterdir())]
    for event in found:
        check_event(event)
    return found


def task(home: Path, name: str, declared: str = TABLES) -> DynamicTableRefreshOperator:
    path = home / "tables.yaml"
    path.write_text(declared)
    definitions = load_definitions(path)
    return DynamicTableRefreshOperator(task_id="refresh", table=f"default.default.{name}", definitions=definitions)


def execute(operator: Any, monkeypatch: pytest.MonkeyPatch, token: str, job: Any = write_numbers, **changes: Any) -> Any:
    monkeypatch.setattr(operator, "_submit", lambda _context, _workspace, plan: job(plan))
    asked: Any = {**context(), **changes}
    asked["ti"].id = token
    return operator.execute(asked)


def task_instance() -> Any:
    run = SimpleNamespace(logical_date=TICK, run_after=TICK, clear_number=0, conf={})
    return SimpleNamespace(
        dag_id="dag",
        task_id="refresh",
        try_number=1,
        map_index=-1,
        dag_run=run,
        get_template_context=lambda: {"dag_run": run},
        task=SimpleNamespace(task_group=None),
    )


def complete(operator: EmitsLineage) -> dict[str, Any]:
    """Return the COMPLETE event of the task as the provider writes it."""
    return event_of(operator.get_openlineage_facets_on_complete(task_instance()))


def event_of(lineage: Any) -> dict[str, Any]:
    made = OpenLineageAdapter(OpenLineageClient(transport=NoopTransport(NoopConfig()))).complete_task(
        run_id="01941e0c-d7a1-7000-8000-000000000000",
        job_name="dag.refresh",
        end_time=TICK.isoformat(),
        task=lineage,
        nominal_start_time=None,
        nominal_end_time=None,
        owners=None,
        tags=None,
        job_description=None,
    )
    return as_written(made)


def run_facet(event: dict[str, Any]) -> dict[str, Any]:
    facet: dict[str, Any] = event["run"]["facets"]["dynamicTables_refresh"]
    return facet


def test_the_event_of_a_refresh_owns_the_table(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = task(home, "parent"), task(home, "child")
    execute(parent, monkeypatch, "p1")
    execute(child, monkeypatch, "c1")
    event = complete(child)
    (read,), (written,) = event["inputs"], event["outputs"]
    assert complete(parent)["outputs"][0]["name"] == read["name"]
    assert (written["namespace"], Path(written["name"]).is_relative_to(home)) == ("file", True)
    assert not written["name"].endswith("c1"), "the stage is not the table"
    facets = written["facets"]
    assert [(field["name"], field["type"]) for field in facets["schema"]["fields"]] == [("x", "bigint")]
    with child.catalog_hook().get_conn() as workspace:
        version = workspace.look_up(child.table.identifier).current()
        assert version is not None
        assert facets["version"]["datasetVersion"] == version.snapshot
        assert read["facets"]["version"]["datasetVersion"] == version.sources["default.default.parent"]
    symlink = {"namespace": "dynamic-table://default", "name": "default.child", "type": "TABLE"}
    assert facets["symlinks"]["identifiers"] == [symlink]
    assert facets["columnLineage"]["fields"]["x"]["inputFields"] == [
        {
            "namespace": read["namespace"],
            "name": read["name"],
            "field": "x",
            "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION"}],
        }
    ]
    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    (assertion,) = facets["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("row_count", True)
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert event["job"]["facets"]["sql"]["query"] == "SELECT x + 1 AS x FROM parent"
    assert event["run"]["facets"]["nominalTime"]["nominalStartTime"] == TICK.isoformat()
    facet = run_facet(event)
    assert (facet["table"], facet["action"], facet["refresh"], facet["version"]) == (
        "default.default.child",
        "INITIALIZE",
        "c1",
        1,
    )
    assert facet["reasonCode"]
    assert facet["partitions"] == []


@pytest.mark.large
def test_every_commit_of_a_task_is_in_one_event(home: Path, monkeypatch: pytest.MonkeyPatch, events: Path) -> None:
    asset = dynamic_table_asset("default.default.hours")
    answer = AssetResult(name=asset.name, uri=asset.uri, group=asset.group)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: answer), raising=False)
    monkeypatch.setattr(catching_up, "MOST_PARTITIONS", 2)

    def job(plan: Any) -> None:
        write_days(plan, {str(spec["ds"]): [1] for spec in plan.partitions})

    execute(task(home, "hours"), monkeypatch, "first", job)
    operator = task(home, "hours")
    execute(operator, monkeypatch, "second", job, logical_date=TICK + timedelta(hours=5))
    last = complete(operator)
    earlier = emitted(events)
    assert [event["eventType"] for event in earlier] == ["COMPLETE", "COMPLETE"]
    assert [run_facet(event)["version"] for event in (*earlier, last)] == [2, 3, 4]
    assert [run_facet(event)["partitions"] for event in (*earlier, last)] == [
        ["ds=2024-01-02-00", "ds=2024-01-02-01"],
        ["ds=2024-01-02-02", "ds=2024-01-02-03"],
        ["ds=2024-01-02-04"],
    ]
    assert len({event["run"]["runId"] for event in (*earlier, last)}) == 3
    assert {event["outputs"][0]["name"] for event in (*earlier, last)} == {last["outputs"][0]["name"]}
    assert {event["run"]["facets"]["parent"]["job"]["name"] for event in earlier} == {"dag.refresh"}
    assert {event["job"]["name"] for event in earlier} == {"dag.refresh.commit"}
    complete(operator)
    assert {event["run"]["runId"] for event in emitted(events)} == {event["run"]["runId"] for event in earlier}


@pytest.mark.large
def test_a_refresh_without_new_data_writes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "raw").mkdir()
    file = home / "raw" / "part-0.parquet"
    pq.write_table(pa.table({"n": [1]}), file)
    os.utime(file, (TICK.timestamp(), TICK.timestamp()))  # long before it is read
    declared = f"""
    defaults: {{spark: {{conn_id: local}}}}
    sources: [{{name: raw, format: parquet, path: {home}/raw, schema: n BIGINT}}]
    dynamic_tables: [{{name: copy, freshness: 1 day, query: SELECT n AS x FROM raw}}]
    """
    by_schedule = {"dag_run": SimpleNamespace(conf={}, run_type="scheduled")}
    operator = task(home, "copy", declared)
    execute(operator, monkeypatch, "c1", **by_schedule)
    event = complete(operator)
    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [("file", f"{home}/raw")]
    (origin,) = event["outputs"][0]["facets"]["columnLineage"]["fields"]["x"]["inputFields"]
    assert (origin["name"], origin["field"]) == (f"{home}/raw", "n"), "although no catalog has its columns"
    operator = task(home, "copy", declared)
    with pytest.raises(AirflowSkipException):
        execute(operator, monkeypatch, "c2", logical_date=TICK + timedelta(days=1), **by_schedule)
    event = complete(operator)
    assert [one["name"] for one in event["inputs"]] == [f"{home}/raw"]
    assert (event["outputs"], run_facet(event)["action"], run_facet(event)["version"]) == ([], "NO_DATA", 1)


@pytest.mark.large
def test_a_failed_refresh_says_what_it_read_and_which_expectation_failed(
    home: Path, monkeypatch: pytest.MonkeyPatch, events: Path
) -> None:
    execute(task(home, "parent"), monkeypatch, "p1")
    operator = task(home, "strict")
    with pytest.raises(AirflowException):
        execute(operator, monkeypatch, "s1")
    event = event_of(operator.get_openlineage_facets_on_failure(task_instance()))
    assert (len(event["inputs"]), event["outputs"]) == (1, [])
    (failed,) = run_facet(event)["expectations"]
    assert (failed["name"], failed["action"], failed["violations"]) == ("row_count", "quarantine", 1)

    comms = SimpleNamespace(send=lambda _: AssetEventsResult(asset_events=[]))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    monkeypatch.setattr(decide, "upsert_hitl_detail", lambda **_: None)
    outlet = Asset("x-published")
    decision = DecideOperator(task_id="decide", table=operator.table.identifier, outlets=[outlet])
    with pytest.raises(TaskDeferred):
        decision.execute(context())
    assert complete(decision)["outputs"] == []
    decision = DecideOperator(task_id="decide", table=operator.table.identifier, outlets=[outlet])
    decision.resume(context(), {"chosen_options": [PUBLISH]})
    event = complete(decision)
    assert (len(event["inputs"]), len(event["outputs"]), run_facet(event)["refresh"]) == (1, 1, "s1")
    assert event["job"]["facets"]["sql"]["query"] == "SELECT x FROM parent"
    assert not event["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"][0]["success"]
    assert emitted(events) == []


@pytest.mark.large
def test_a_version_that_its_task_did_not_report_is_an_output_of_the_maintenance(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(message: Any) -> Any:
        if isinstance(message, GetAssetByUri):
            return AssetResult(name=str(message.uri), uri=str(message.uri), group="dynamic-table")
        return AssetEventsResult(asset_events=[])

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    declared = "defaults: {spark: {conn_id: local}}\ndynamic_tables:\n- {name: parent, freshness: 1 day, query: SELECT 1 AS x}\n"
    operator = task(home, "parent", declared)
    asked = {"ti": SimpleNamespace(**{**vars(context()["ti"]), "run_id": "scheduled__1", "id": "p1"})}
    monkeypatch.setattr(operator, "_report", lambda *_: {})
    execute(operator, monkeypatch, "p1", **asked)
    states = SimpleNamespace(get_task_states=lambda run_ids, **_: {run: {"refresh": "failed"} for run in run_ids})
    sweep = SweepOperator(task_id="sweep")
    of_sweep: Any = {**context(), "ti": states}
    report = sweep.execute(of_sweep)
    assert report["reported"] == ["p1"]
    event = complete(sweep)
    assert (len(event["outputs"]), run_facet(event)["refresh"]) == (1, "p1")


@pytest.mark.large
def test_a_table_has_the_name_of_its_asset_while_its_catalog_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = home / "catalogs.yaml"
    catalogs.write_text(f"catalogs: [{{name: default, type: sql, connection-params: {{url: 'sqlite:///{home}/catalog.db'}}}}]")
    monkeypatch.setenv("DYNAMIC_TABLES_CATALOGS", str(catalogs))
    operator = task(home, "parent")
    execute(operator, monkeypatch, "p1")
    (home / "catalog.db").write_bytes(b"no database" * 100)
    (written,) = complete(operator)["outputs"]
    assert (written["namespace"], written["name"]) == ("dynamic-table://default", "default.parent")
    assert "schema" not in written["facets"]


@pytest.mark.large
def test_create_table_as_creates_and_replaces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def making(**options: Any) -> CreateTableAsOperator:
        return CreateTableAsOperator(
            task_id="make", table="shop.figures", query="SELECT x FROM default.parent", conn_id="local", **options
        )

    execute(task(home, "parent"), monkeypatch, "p1")
    operator = making()
    execute(operator, monkeypatch, "t1")
    event = complete(operator)
    (written,) = event["outputs"]
    assert written["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert event["job"]["facets"]["sql"]["query"] == "SELECT x FROM default.parent"
    assert [one["field"] for one in written["facets"]["columnLineage"]["fields"]["x"]["inputFields"]] == ["x"]
    operator = making(if_not_exists=True)
    execute(operator, monkeypatch, "t2")
    assert complete(operator)["outputs"] == []
    operator = making(replace=True)
    execute(operator, monkeypatch, "t3")
    (again,) = complete(operator)["outputs"]
    assert again["name"] == written["name"]
    assert again["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


@pytest.mark.large
def test_a_renamed_table_says_what_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(task(home, "parent"), monkeypatch, "p1")
    declared = """
    defaults: {spark: {conn_id: local}}
    dynamic_tables:
    - {name: fresh, renamed_from: parent, freshness: 1 day, query: SELECT 2 AS x}
    """
    operator = task(home, "fresh", declared)
    execute(operator, monkeypatch, "p2", logical_date=TICK + timedelta(days=1))
    change = complete(operator)["outputs"][0]["facets"]["lifecycleStateChange"]
    assert (change["lifecycleStateChange"], change["previousIdentifier"]) == (
        "RENAME",
        {"namespace": "dynamic-table://default", "name": "default.parent"},
    )


def test_the_start_depends_on_nothing_that_a_task_finds_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DYNAMIC_TABLES_DEFAULT", '{"conn_type": "dynamic_tables", "host": "nowhere.invalid"}')
    refresh = task(home, "child")
    tasks: list[tuple[EmitsLineage, str | None]] = [
        (refresh, refresh.table.query),
        (
            VerifyOperator(task_id="verify", table=refresh.table, definitions=load_definitions(home / "tables.yaml")),
            refresh.table.query,
        ),
        (CreateTableAsOperator(task_id="make", table="a.b", query="SELECT 1 AS x"), "SELECT 1 AS x"),
        (DecideOperator(task_id="decide", table=refresh.table.identifier), None),
        (SweepOperator(task_id="sweep"), None),
    ]
    for operator, query in tasks:
        for lineage in (
            operator.get_openlineage_facets_on_start(),
            operator.get_openlineage_facets_on_complete(task_instance()),
            operator.get_openlineage_facets_on_failure(task_instance()),
        ):
            event = event_of(lineage)
            assert (event["inputs"], event["outputs"]) == ([], [])
            assert event["job"]["facets"].get("sql", {}).get("query") == query


def test_an_asset_is_a_symlink_of_its_table() -> None:
    dataset = translate_airflow_asset(dynamic_table_asset("lake.sales.`a b.c`"), None)
    assert dataset is not None
    assert (dataset.namespace, dataset.name) == ("dynamic-table://lake", "sales.`a b.c`")


@pytest.mark.large
def test_operators_need_no_extra() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "openlineage":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from airflow_dynamic_tables.operators import continuous_refresh, decide, maintenance, verification
from airflow_dynamic_tables.operators.one_off import create_table_as
from airflow_dynamic_tables import assets, dag_factory
print([name for name in sys.modules if name.partition(".")[0] == "openlineage"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr
