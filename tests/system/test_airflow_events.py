"""Asset events: of a task that is killed between its commit and its end, and of the partitions that a refresh replaced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.airflow import Stack, until
from tests.support.airflow_version import since

pytestmark = [pytest.mark.system, pytest.mark.postgres]

TABLE = """
sources: [{name: told_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.events.told
    retries: 0
    freshness: 1 day
    schedule: 0 0 1 1 *
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM told_source
"""
ASSET = "dynamic-table://lake/events/told"
DAG, MAINTENANCE = "dynamic_table__lake__events__told", "dynamic_tables__maintenance"

KILLED_ONCE = """
if "dynamic_table__lake__events__told" in globals() and not Path("MARK").exists():
    import os, signal, sys

    def die(event, _arguments):
        if event == "airflow_dynamic_tables.completed" and not Path("MARK").exists():
            Path("MARK").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
"""


def events(stack: Stack) -> list[dict[str, Any]]:
    found = stack.get("/assets/events", name_pattern=ASSET, order_by="timestamp")["asset_events"]
    return [event for event in found if event["name"] == ASSET]


def maintain(stack: Stack) -> None:
    stack.until_state(MAINTENANCE, stack.trigger(MAINTENANCE), "success", task_id="sweep", seconds=600)


@pytest.mark.large
def test_a_task_that_is_killed_after_its_commit_has_its_event_once(stack: Stack) -> None:
    folder = stack.airflow.home / "told"
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    stack.airflow.define("events.yaml", TABLE.replace("FOLDER", str(folder)))
    stack.airflow.append(KILLED_ONCE.replace("MARK", str(stack.airflow.home / "killed_once")))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=DAG)["total_entries"])
    stack.unpause(DAG)
    run_id = stack.first_run(DAG)
    stack.until_state(DAG, run_id, "failed", seconds=600)
    (killed,) = stack.airflow.refreshes("lake.events.told")
    assert killed.state == "SUCCEEDED"
    assert events(stack) == []

    stack.unpause(MAINTENANCE)
    maintain(stack)
    (late,) = events(stack)
    assert (late["extra"]["version"], late["extra"]["refresh"], late["extra"]["rows"]) == (1, killed.token, 1)
    assert (late["source_dag_id"], late["source_task_id"]) == (MAINTENANCE, "sweep")
    stack.until_state(DAG, stack.trigger(DAG), "success", seconds=600)
    maintain(stack)
    assert [event["extra"]["version"] for event in events(stack)] == [1, 2]


DATED = """
sources: [{name: dated_source, format: json, path: FOLDER, schema: "x bigint, ds string"}]
dynamic_tables:
  - name: lake.events.dated
    retries: 0
    freshness: 1 day
    schedule: 0 0 1 1 *
    initial: latest
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    partition_events: changed
    partition_events_limit: 28
    spark: {conn_id: spark_stand_in}
    query: SELECT x, ds FROM dated_source
"""
DATED_DAG = "dynamic_table__lake__events__dated"

CONSUMERS = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, MonthWindow, PartitionedAssetTimetable, RollupMapper, StartOfMonthMapper

DATED = Asset("dynamic-table://lake/events/dated")
BY_MONTH = StartOfMonthMapper(input_format="ds=%Y-%m-%d", output_format="ds=%Y-%m")
COMPLETE = RollupMapper(upstream_mapper=BY_MONTH, window=MonthWindow())
for name, schedule in {
    "plain": [DATED],
    "by_day": PartitionedAssetTimetable(assets=DATED),
    "by_month": PartitionedAssetTimetable(assets=DATED, default_partition_mapper=COMPLETE),
}.items():
    with DAG(f"dated_{name}", schedule=schedule, is_paused_upon_creation=False) as dag:
        EmptyOperator(task_id="wake")
    globals()[f"dated_{name}"] = dag
"""


@since(3, 3)
@pytest.mark.large
def test_dags_run_for_each_partition_that_a_refresh_replaced(stack: Stack) -> None:
    folder = stack.airflow.home / "dated"
    folder.mkdir()
    days = [f"2023-02-{day:02}" for day in range(1, 29)]
    (folder / "rows.json").write_text("".join(f"{json.dumps({'x': 1, 'ds': day})}\n" for day in days))
    stack.airflow.define("dated.yaml", DATED.replace("FOLDER", str(folder)))
    stack.airflow.append(CONSUMERS)
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="%dated%")["total_entries"] == 4)
    stack.unpause(DATED_DAG)
    stack.first_run(DATED_DAG)  # of the latest day, which has no rows

    def refresh(*partitions: str) -> None:
        conf = {"partition": ",".join(f"ds={day}" for day in partitions)} if partitions else {"full_refresh": True}
        stack.until_state(DATED_DAG, stack.trigger(DATED_DAG, conf=conf), "success", seconds=300)

    def keys(dag_id: str) -> list[str]:
        found = [str(run["partition_key"]) for run in stack.runs(dag_id, state="success", limit=100)]
        return sorted(key for key in found if key.startswith("ds=2023"))

    def until_keys(dag_id: str, *expected: str) -> None:
        until(f"runs of {dag_id} for {expected}", lambda: keys(dag_id) == sorted(f"ds={key}" for key in expected), 120)

    late, *early = days
    refresh(*early)
    until_keys("dated_by_day", *early)
    plain = len(stack.runs("dated_plain"))
    assert plain >= 1, "the event of the table is no partition's"
    assert keys("dated_by_month") == [], "a day is missing"
    refresh(late)
    until_keys("dated_by_month", "2023-02")
    until_keys("dated_by_day", *days)
    until("another run of the DAG without partitions", lambda: len(stack.runs("dated_plain")) > plain, 120)

    # A full refresh starts no run for each of its days.
    plain = len(stack.runs("dated_plain"))
    refresh()
    until("its run without partitions", lambda: len(stack.runs("dated_plain")) > plain, 120)
    assert len(keys("dated_by_day")) == len(days)
    events = stack.get("/assets/events", source_dag_id=DATED_DAG, order_by="-timestamp", limit=100)["asset_events"]
    assert events[0]["extra"]["partitions_total"] is None
    assert {event["partition_key"] for event in events} > {f"ds={day}" for day in days}
