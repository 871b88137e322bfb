"""A table that is refreshed all the time, in a running Airflow: files appear, people interfere, workers die."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.system, pytest.mark.postgres]

TABLE = """
sources: [{name: live_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - name: lake.continuous.live
    comment: COMMENT
    freshness: 3 seconds
    continuous: {events: 15 seconds}
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM live_source
"""

NAME, DAG = "lake.continuous.live", "dynamic_table__lake__continuous__live"

LIMIT = 300
"""Seconds for what takes ten when the machine has nothing else to do."""


@dataclass
class Live:
    """The table, its source and its runs."""

    stack: Stack
    folder: Path

    def define(self, comment: str) -> None:
        self.stack.airflow.define("live.yaml", TABLE.replace("FOLDER", str(self.folder)).replace("COMMENT", comment))

    def add(self, number: int) -> None:
        hidden = self.folder / f".{number}.json"
        hidden.write_text(json.dumps({"x": number, "nap": 0}) + "\n")
        hidden.rename(self.folder / f"{number}.json")

    def until_rows(self, *numbers: int) -> None:
        until(f"rows {numbers}", lambda: self.history() and self.rows() == list(numbers), LIMIT)

    def rows(self) -> list[int]:
        return sorted(row["x"] for row in self.stack.airflow.rows(NAME)) if self.committed() else []

    def history(self) -> list[Refresh]:
        return self.stack.airflow.refreshes(NAME)

    def committed(self) -> list[Refresh]:
        return [refresh for refresh in self.history() if refresh.state is RefreshState.SUCCEEDED]

    def running(self) -> list[dict[str, Any]]:
        return self.stack.runs(DAG, state="running")

    def told(self) -> set[str]:
        events = self.stack.get("/assets/events", name_pattern="dynamic-table://lake/continuous/live", limit=100)
        return {event["extra"]["refresh"] for event in events["asset_events"]}

    def kill_task(self) -> bool:
        """``kill -9`` the process of the task that refreshed last, unless it ended already."""
        with self.stack.airflow.workspace() as workspace:
            stage = workspace.ledger.get_stage(self.committed()[0].token)
        try:
            os.kill(int(stage.process.split("|")[2]), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def comment(self) -> str | None:
        with self.stack.airflow.workspace() as workspace:
            entry = workspace.catalog("lake").get_table(TableIdentifier.parse(NAME).path)
        assert isinstance(entry, CatalogDynamicTable)
        return entry.comment


def test_a_table_that_is_refreshed_all_the_time(stack: Stack) -> None:
    live = Live(stack, stack.airflow.home / "live")
    live.folder.mkdir()
    live.define("as at first")
    live.add(1)
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=DAG)["total_entries"])
    stack.unpause(DAG)
    live.until_rows(1)
    live.add(2)
    live.until_rows(1, 2)
    first = {refresh.token for refresh in live.committed()}
    until("events of both", lambda: first <= live.told(), LIMIT)
    assert {run["state"] for run in stack.runs(DAG)} <= {"success", "running", "queued"}

    until("a task at work", live.kill_task, LIMIT)
    live.add(3)
    live.until_rows(1, 2, 3)

    live.define("as it is now")
    until("new definition", lambda: live.comment() == "as it is now", LIMIT)

    # Its run waits for the loop, which makes way.
    by_hand = stack.trigger(DAG, conf={"full_refresh": True})
    stack.until_state(DAG, by_hand, "success", seconds=LIMIT)
    assert any(refresh.reason_code == "FULL_REFRESH" for refresh in live.committed())

    stack.api.patch(f"/dags/{DAG}", json={"is_paused": True}).raise_for_status()
    until("end of the loop", lambda: not live.running(), LIMIT)
    assert {run["state"] for run in stack.runs(DAG, state="failed")} == set()
    assert stack.airflow.stages() == []
