"""Backfills at once: of several tables, of overlapping dates, and beside a run by hand. A stand-in for Spark runs the jobs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import httpx
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from tests.support.airflow import Stack, until
from tests.support.faults.report import FaultReport

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1200)]

TABLES = ("one", "other")
SOURCE = """
  - name: {name}_source
    format: json
    path: {path}
    schema: "x bigint, ds string, nap bigint"
"""
TABLE = """
  - name: {name}
    spark: {{conn_id: spark_stand_in}}
    partitioned_by: [ds]
    initial: latest
    options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
    query: SELECT x, ds FROM {name}_source WHERE reflect('java.lang.Thread', 'sleep', nap) IS NOT NULL
"""


def dag(table: str) -> str:
    return f"dynamic_table__lake__backfills__{table}"


def offer(folder: Path, numbers: list[int], nap: int) -> None:
    """One row a day from the first of January on, in one step; the job sleeps at the first."""
    rows = [{"x": x, "ds": f"2024-01-{day:02d}", "nap": 0} for day, x in enumerate(numbers, 1)]
    rows[0]["nap"] = nap
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    (folder / "half.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "half.json").replace(folder / "rows" / "rows.json")


@pytest.fixture(scope="module")
def folder(stack: Stack) -> Path:
    folder = stack.airflow.home / "backfills"
    for name in TABLES:
        offer(folder / name, [1, 2, 3, 4], nap=1)
    sources = "".join(SOURCE.format(name=name, path=folder / name / "rows") for name in TABLES)
    tables = "".join(TABLE.format(name=name) for name in TABLES)
    defaults = "defaults: {catalog: lake, database: backfills, retries: 0, freshness: 1 day}"
    stack.airflow.define("backfills.yaml", f"{defaults}\nsources:{sources}dynamic_tables:{tables}")
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern=dag("%"))["total_entries"] == len(TABLES))
    for name in TABLES:
        stack.unpause(dag(name))
        # Before the backfills: after them the schedule makes up for all days since then.
        stack.until_state(dag(name), stack.first_run(dag(name)), "success")
    return folder


def backfill(stack: Stack, table: str, first: str, last: str, again: str = "none") -> httpx.Response:
    body = {"dag_id": dag(table), "from_date": f"{first}T00:00:00Z", "to_date": f"{last}T00:00:00Z", "reprocess_behavior": again}
    return stack.api.post("/backfills", json=body)


def content(stack: Stack, table: str) -> dict[str, int]:
    return {row["ds"]: row["x"] for row in stack.airflow.rows(f"lake.backfills.{table}")}


def sleeping(stack: Stack) -> set[str]:
    with stack.airflow.workspace() as workspace:
        return {str(stage.table) for stage in workspace.ledger.list_stages() if {"ds": "2024-01-01"} in stage.partitions}


def succeeded(stack: Stack, table: str) -> bool:
    """Whether every run did; a failure is an error at once."""
    states = [run["state"] for run in stack.runs(dag(table))]
    assert "failed" not in states
    return set(states) == {"success"}


def check_events(stack: Stack, table: str) -> None:
    versions = [(done.version, done.token) for done in reversed(stack.airflow.refreshes(f"lake.backfills.{table}"))]
    assert [number for number, _ in versions] == list(range(1, len(versions) + 1))
    events = stack.get("/assets/events", source_dag_id=dag(table))["asset_events"]
    assert [(event["extra"]["version"], event["extra"]["refresh"]) for event in events] == versions
    with stack.airflow.workspace() as workspace:
        assert workspace.ledger.list_stages(TableIdentifier("lake", "backfills", table)) == []


def test_two_tables_and_overlapping_dates_and_a_run_by_hand(stack: Stack, folder: Path, fault_report: FaultReport) -> None:
    for name in TABLES:
        assert backfill(stack, name, "2024-01-02", "2024-01-04").is_success
    assert backfill(stack, "one", "2024-01-03", "2024-01-05").status_code == httpx.codes.CONFLICT, "Airflow runs one at a time"
    by_hand = stack.trigger(dag("one"), conf={"partition": "ds=2024-01-02"})
    until("both at once", lambda: sleeping(stack) == {f"lake.backfills.{name}" for name in TABLES}, 400)
    for name in TABLES:
        (folder / name / "awake").touch()
    stack.until_state(dag("one"), by_hand, "success", seconds=400)
    for name in TABLES:
        until(f"backfill of {name}", partial(succeeded, stack, name), 400)
        assert content(stack, name) == {"2024-01-01": 1, "2024-01-02": 2, "2024-01-03": 3}
        check_events(stack, name)

    offer(folder / "one", [10, 20, 30, 40], nap=0)
    until("end of the first backfill", lambda: backfill(stack, "one", "2024-01-03", "2024-01-05", "completed").is_success)
    until("overlapping backfill", lambda: len(stack.runs(dag("one"), run_type="backfill")) == 4 and succeeded(stack, "one"), 400)
    assert content(stack, "one") == {"2024-01-01": 1, "2024-01-02": 20, "2024-01-03": 30, "2024-01-04": 40}
    check_events(stack, "one")
    fault_report.injected("two backfills at once", 2)
