"""A refresh of several commits and the daily verification of its table, in a running Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.dag_factory import VERIFICATION_DAG
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.spark, pytest.mark.postgres]

TABLE = TableIdentifier("lake", "checked", "days")
DAYS = [f"2024-01-0{day}" for day in range(1, 6)]
TABLES = """
sources: [{name: readings, format: json, path: FOLDER, schema: "n bigint", partitioned_by: [ds]}]
dynamic_tables:
  - name: lake.checked.days
    freshness: 1 day
    schedule: 0 0 1 1 *
    refresh_mode: incremental
    partitioned_by: [ds]
    max_partitions_per_commit: 2
    verify_every: 1 day
    retries: 0
    spark: SPARK
    query: SELECT ds, sum(n) AS n FROM readings GROUP BY ds
"""
DAG = TABLE.workflow_id


@pytest.fixture(scope="module")
def refreshed(stack: Stack) -> Iterator[str]:
    """The run that made the table."""
    airflow = stack.airflow
    folder = airflow.home / "readings"
    for number, day in enumerate(DAYS):
        write(folder, day, number)
    airflow.define("checked.yaml", TABLES.replace("FOLDER", str(folder)))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=DAG)["total_entries"])
    until("verification", lambda: stack.get("/dags", dag_id_pattern=VERIFICATION_DAG)["total_entries"])
    stack.unpause(DAG)
    run_id = stack.first_run(DAG)
    stack.until_state(DAG, run_id, "success")
    yield run_id
    stack.pause(DAG)
    stack.pause(VERIFICATION_DAG)
    (airflow.definitions / "checked.yaml").unlink()
    airflow.parse()


def write(folder: Path, day: str, *numbers: int) -> None:
    (folder / f"ds={day}").mkdir(parents=True, exist_ok=True)
    (folder / f"ds={day}" / "numbers.json").write_text("\n".join(json.dumps({"n": number}) for number in numbers))


def log_of(stack: Stack, run_id: str, state: str) -> str:
    """Wait for a state of the verification in a run of its DAG; return its log."""
    stack.until_state(VERIFICATION_DAG, run_id, state, task_id=TABLE.task_id)
    return json.dumps(stack.get(f"/dags/{VERIFICATION_DAG}/dagRuns/{run_id}/taskInstances/{TABLE.task_id}/logs/1"))


def test_each_commit_of_a_refresh_has_an_asset_event(stack: Stack, refreshed: str) -> None:
    commits = stack.airflow.refreshes(str(TABLE))[::-1]
    assert [commit.version for commit in commits] == [1, 2, 3]
    assert [len(commit.partitions) for commit in commits] == [2, 2, 1]
    events = stack.get("/assets/events", source_dag_id=DAG, source_run_id=refreshed)["asset_events"]
    assert sorted(event["extra"]["version"] for event in events) == [1, 2, 3]
    assert sorted(spec for event in events for spec in event["extra"]["partitions"]) == [f"ds={day}" for day in DAYS]
    assert {row["ds"]: row["n"] for row in stack.airflow.rows(str(TABLE))} == {day: n for n, day in enumerate(DAYS)}


@pytest.mark.usefixtures("refreshed")
def test_days_that_changed_later_are_committed_in_turn(stack: Stack) -> None:
    for number, day in enumerate(DAYS[:3]):
        write(stack.airflow.home / "readings", day, number, 10)
    stack.until_state(DAG, stack.trigger(DAG), "success")
    commits = stack.airflow.refreshes(str(TABLE))[:2]
    assert [commit.version for commit in commits] == [5, 4]
    assert sorted(len(commit.partitions) for commit in commits) == [1, 2]


@pytest.mark.usefixtures("refreshed")
def test_the_verification_passes_until_another_engine_changes_rows(stack: Stack) -> None:
    stack.unpause(VERIFICATION_DAG)
    assert all(f"ds={day}" in log_of(stack, stack.first_run(VERIFICATION_DAG), "success") for day in DAYS)
    with stack.airflow.workspace() as workspace:
        current = workspace.existing_table(TABLE).current()
        tables = workspace.catalog("lake").stores()[0].tables  # type: ignore[attr-defined]
        rows = pa.Table.from_pylist([{"ds": DAYS[4], "n": 99}], tables.load_table(("checked", "days")).schema().as_arrow())
        tables.load_table(("checked", "days")).overwrite(rows, f"ds = '{DAYS[4]}'")
    assert f"ds={DAYS[4]}" in log_of(stack, stack.trigger(VERIFICATION_DAG), "failed")
    (record,) = stack.airflow.refreshes(str(TABLE))[:1]
    assert record.action is RefreshAction.VERIFY
    assert [one.name for one in record.expectations if one.violations] == [f"ds={DAYS[4]}"]
    with stack.airflow.workspace() as workspace:
        assert workspace.existing_table(TABLE).current() == current, "a verification publishes nothing"
