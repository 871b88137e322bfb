"""Ticks that fail, never run or are skipped in a running Airflow: what makes up for them, and what a child counts meanwhile.

A stand-in for Spark runs the jobs. The schedule has ended, so that a test says which ticks there are: a run with their date.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.lifecycle.suspending import resume, suspend
from airflow_dynamic_tables.services.status import TableStatus, show_table
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1200)]

DAYS = TableIdentifier("lake", "holes", "days")
PARENT, CHILD = (f"dynamic_table__lake__holes__{name}" for name in ("days", "sums"))
TABLES = """
defaults: {catalog: lake, database: holes, retries: 0, freshness: 1 day, start_date: 2024-01-01, end_date: 2024-02-01}
sources: [{name: orders, format: json, path: FOLDER, schema: "x bigint, ds string"}]
dynamic_tables:
  - name: days
    spark: {conn_id: spark_stand_in}
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    query: SELECT x, ds FROM orders
  - {name: sums, spark: {conn_id: spark_stand_in}, query: SELECT x FROM days}
"""


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=UTC)


def offer(folder: Path, days: int, spoiled: bool = False) -> None:
    """One order a day, of the amount 1, 2, 4, 8 …, in a file that is replaced in one step; no job can read it when spoiled."""
    rows = [{"x": 2 ** (number - 1), "ds": f"{day(number):%Y-%m-%d}"} for number in range(1, days + 1)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder.parent / "half.json").write_text("spoiled" if spoiled else text)
    (folder.parent / "half.json").replace(folder / "orders.json")


def total(stack: Stack, table: str) -> int:
    return sum(row["x"] for row in stack.airflow.rows(f"lake.holes.{table}"))


def tick(stack: Stack, number: int, *states: str, dag_id: str = PARENT) -> str:
    run_id = stack.trigger(dag_id, logical_date=day(number).isoformat())
    stack.until_state(dag_id, run_id, *states)
    return run_id


def status(stack: Stack) -> TableStatus:
    with stack.airflow.workspace() as workspace:
        return show_table(workspace, DAYS).status


@pytest.fixture(scope="module")
def folder(stack: Stack) -> Path:
    folder = stack.airflow.home / "holes" / "orders"
    folder.mkdir(parents=True)
    stack.airflow.define("holes.yaml", TABLES.replace("FOLDER", str(folder)))
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="dynamic_table__lake__holes__%")["total_entries"] == 2)
    for dag_id in (PARENT, CHILD):
        stack.unpause(dag_id)
    return folder


def test_lost_ticks_are_made_up_for_and_children_wait_for_them(stack: Stack, folder: Path) -> None:
    offer(folder, days=1)
    tick(stack, 2, "success")
    offer(folder, days=2, spoiled=True)
    tick(stack, 3, "failed")
    broken = status(stack)
    assert (broken.fresh_until, broken.last_refresh, (broken.missing or "")[:13]) == (day(2), "FAILED", "ds=2024-01-02")
    waiting = tick(stack, 5, "deferred", dag_id=CHILD)

    offer(folder, days=4)  # there was no tick of the third day: the scheduler was down
    tick(stack, 5, "success")
    assert "it makes up for ds=2024-01-02 and ds=2024-01-03" in stack.airflow.refreshes(str(DAYS))[0].reason
    stack.until_state(CHILD, waiting, "success")
    assert (total(stack, "days"), total(stack, "sums"), status(stack).fresh_until) == (0b1111, 0b1111, day(5))

    with stack.airflow.workspace() as workspace:
        suspend(workspace, DAYS, "the source moves")
    offer(folder, days=5)
    tick(stack, 6, "skipped")
    with stack.airflow.workspace() as workspace:
        resume(workspace, DAYS)
    offer(folder, days=6)
    later = stack.trigger(PARENT, conf={"schedule_time": day(7).isoformat()})
    stack.until_state(PARENT, later, "success")
    assert (total(stack, "days"), status(stack).fresh_until) == (0b101111, day(5)), "the fifth day is a hole"

    dates = {"from_date": day(6).isoformat(), "to_date": day(6).isoformat()}
    begun = stack.api.post("/backfills", json={"dag_id": PARENT, **dates, "reprocess_behavior": "completed"})
    assert begun.status_code == httpx.codes.OK, begun.text
    until("backfill", lambda: status(stack).fresh_until == day(7))
    assert total(stack, "days") == 0b111111

    offer(folder, days=7, spoiled=True)
    failed = tick(stack, 8, "failed")
    offer(folder, days=7)
    stack.clear(PARENT, failed)
    until("cleared run", lambda: status(stack).fresh_until == day(8))
    assert total(stack, "days") == 0b1111111
