"""A table that is refreshed all the time, in a running Airflow: files appear, people interfere, workers die."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psutil
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
    continuous: {events: 5 seconds}
    retry_delay: 1 second
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM live_source
"""

LIMIT = 300
"""Seconds for what takes ten when the machine has nothing else to do."""


@dataclass
class Live:
    """The table, its source and its runs."""

    stack: Stack
    name: str

    @property
    def folder(self) -> Path:
        return self.stack.airflow.home / self.name

    @property
    def table(self) -> str:
        return f"lake.continuous.{self.name}"

    @property
    def dag(self) -> str:
        return f"dynamic_table__lake__continuous__{self.name}"

    def define(self, text: str, comment: str = "as at first") -> None:
        text = text.replace("live", self.name).replace("FOLDER", str(self.folder)).replace("COMMENT", comment)
        self.stack.airflow.define(f"{self.name}.yaml", text)

    def begin(self, text: str) -> None:
        self.folder.mkdir()
        self.define(text)
        self.add(1)
        until("DAG", lambda: self.stack.get("/dags", dag_id_pattern=self.dag)["total_entries"])
        self.stack.unpause(self.dag)
        self.until_rows(1)

    def pause(self) -> None:
        """Pause the DAG, and wait until the loop made an end."""
        self.stack.api.patch(f"/dags/{self.dag}", json={"is_paused": True}).raise_for_status()
        until("end of the loop", lambda: not self.stack.runs(self.dag, state="running"), LIMIT)
        assert self.stack.runs(self.dag, state="failed") == []
        assert self.stack.airflow.stages() == []

    def add(self, number: int) -> None:
        hidden = self.folder / f".{number}.json"
        hidden.write_text(json.dumps({"x": number, "nap": 0}) + "\n")
        hidden.rename(self.folder / f"{number}.json")

    def until_rows(self, *numbers: int) -> None:
        until(f"rows {numbers}", lambda: self.history() and self.rows() == list(numbers), LIMIT)

    def rows(self) -> list[int]:
        return sorted(row["x"] for row in self.stack.airflow.rows(self.table, limit=10_000)) if self.committed() else []

    def history(self) -> list[Refresh]:
        return self.stack.airflow.refreshes(self.table)

    def committed(self) -> list[Refresh]:
        return [refresh for refresh in self.history() if refresh.state is RefreshState.SUCCEEDED]

    def told(self) -> set[str]:
        events = self.stack.get("/assets/events", name_pattern=f"dynamic-table://lake/continuous/{self.name}", limit=100)
        return {event["extra"]["refresh"] for event in events["asset_events"]}

    def kill_task(self) -> bool:
        """``kill -9`` the process of the task that runs, if one does."""
        tasks = [self.stack.task(self.dag, run["dag_run_id"]) for run in self.stack.runs(self.dag, state="running")]
        pids = [task["pid"] for task in tasks if task["state"] == "running" and task["pid"]]
        with suppress(psutil.NoSuchProcess):
            for pid in pids:
                psutil.Process(pid).kill()
            return bool(pids)
        return False

    def comment(self) -> str | None:
        with self.stack.airflow.workspace() as workspace:
            entry = workspace.catalog("lake").get_table(TableIdentifier.parse(self.table).path)
        assert isinstance(entry, CatalogDynamicTable)
        return entry.comment


def test_a_table_that_is_refreshed_all_the_time(stack: Stack) -> None:
    live = Live(stack, "live")
    live.begin(TABLE)
    live.add(2)
    live.until_rows(1, 2)
    first = {refresh.token for refresh in live.committed()}
    until("events of both", lambda: first <= live.told(), LIMIT)

    until("a task at work", live.kill_task, LIMIT)
    live.add(3)
    live.until_rows(1, 2, 3)

    live.define(TABLE, comment="as it is now")
    until("new definition", lambda: live.comment() == "as it is now", LIMIT)

    # Its run waits for the loop, which makes way.
    by_hand = stack.trigger(live.dag, conf={"full_refresh": True})
    stack.until_state(live.dag, by_hand, "success", seconds=LIMIT)
    assert any(refresh.reason_code == "FULL_REFRESH" for refresh in live.committed())
    live.pause()


LONG = 7200
"""Seconds of the long form."""

STEADY = TABLE.replace("3 seconds", "10 seconds").replace("5 seconds", "1 minute")


@pytest.mark.long
@pytest.mark.timeout(LONG + 1800)
def test_two_hours_of_ten_seconds_freshness(stack: Stack) -> None:
    """A file every five seconds: nothing is lost or doubled, and 95 % are visible within two freshnesses."""
    steady = Live(stack, "steady")
    steady.begin(STEADY)
    added = [datetime.now(UTC)]
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(5)
        added.append(datetime.now(UTC))
        steady.add(len(added))
    steady.until_rows(*range(1, len(added) + 1))
    commits = sorted((refresh.finished_at, refresh.rows) for refresh in steady.committed())
    seen = [next(at for at, rows in commits if rows >= number) for number in range(1, len(added) + 1)]
    delays = sorted((visible - at).total_seconds() for visible, at in zip(seen, added, strict=True))
    late = delays[-len(delays) // 20]
    print(f"{len(delays)} files, {len(commits)} versions, seconds until visible: median {median(delays)}, 95 % {late}")
    assert late <= 20
    steady.pause()


WHOLE = """
sources:
  - {name: whole_source, format: json, path: FOLDER, schema: "x bigint, ds string", partitioned_by: [day], watermark: source,
     options: {partition.time-interval: 1 day}}
dynamic_tables:
  - name: lake.continuous.whole
    freshness: 3 seconds
    partitioned_by: [ds]
    continuous: {events: 5 seconds}
    spark: {conn_id: spark_stand_in}
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd, sink.partition-commit.trigger: partition-time}
    query: SELECT x, ds FROM whole_source
"""

WHOLE_NAME, WHOLE_DAG = "lake.continuous.whole", "dynamic_table__lake__continuous__whole"


@pytest.mark.long  # three rounds of loop, event and end of the run
def test_partitions_are_told_once_they_are_whole(stack: Stack) -> None:
    folder = stack.airflow.home / "whole"

    def add(day: str, number: int) -> None:
        (folder / f"day={day}").mkdir(parents=True, exist_ok=True)
        row = json.dumps({"x": number, "ds": day})
        (folder / f"day={day}" / f"{number}.json").write_text(row + "\n")

    def told() -> list[str]:
        events = stack.get("/assets/events", name_pattern="dynamic-table://lake/continuous/whole", limit=100)["asset_events"]
        return sorted(event["partition_key"] for event in events if event["partition_key"])

    add("2021-03-19", 1)
    stack.airflow.define("whole.yaml", WHOLE.replace("FOLDER", str(folder)))
    until("DAG", lambda: stack.get("/dags", dag_id_pattern=WHOLE_DAG)["total_entries"])
    stack.unpause(WHOLE_DAG)
    until("a look", lambda: any("has no _SUCCESS yet" in each.reason for each in stack.airflow.refreshes(WHOLE_NAME)), LIMIT)
    assert told() == []
    (folder / "day=2021-03-19" / "_SUCCESS").touch()
    until("the first day", lambda: told() == ["ds=2021-03-19"], LIMIT)
    assert [row["x"] for row in stack.airflow.rows(WHOLE_NAME)] == [1]
    add("2021-03-20", 2)
    (folder / "day=2021-03-20" / "_SUCCESS").touch()
    until("the second day", lambda: told() == ["ds=2021-03-19", "ds=2021-03-20"], LIMIT)
    add("2021-03-19", 3)
    until("the first day again", lambda: told() == ["ds=2021-03-19", "ds=2021-03-19", "ds=2021-03-20"], LIMIT)
    assert sorted(row["x"] for row in stack.airflow.rows(WHOLE_NAME)) == [1, 2, 3]
    stack.api.patch(f"/dags/{WHOLE_DAG}", json={"is_paused": True}).raise_for_status()
    until("end of the loop", lambda: not stack.runs(WHOLE_DAG, state="running"), LIMIT)
    assert {run["state"] for run in stack.runs(WHOLE_DAG, state="failed")} == set()
