"""A table that is refreshed all the time in a running Airflow, with its source and its runs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from tests.support.airflow import Stack, until

LIMIT = 600
"""Seconds for what takes ten when the machine has nothing else to do."""

TABLE = """
sources:
  - {name: live_source, format: json, path: FOLDER/rows, schema: "x bigint, nap bigint"}
  - {name: live_other, format: json, path: FOLDER/other, schema: "x bigint, nap bigint"}
dynamic_tables:
  - name: lake.continuous.live
    freshness: 3 seconds
    continuous: {events: 5 seconds}
    retry_delay: 1 second
    spark: {conn_id: spark_stand_in}
    query: SELECT x FROM live_source
"""


@dataclass
class Live:
    """The table, its source and its runs.

    :param column: of the table, and of its source.
    """

    stack: Stack
    name: str
    column: str = "x"

    @property
    def folder(self) -> Path:
        """Where its sources are, and what its jobs wait for (see :mod:`tests.support.cluster_stand_in`)."""
        return self.stack.airflow.home / self.name

    @property
    def file(self) -> Path:
        return self.stack.airflow.definitions / f"{self.name}.yaml"

    @property
    def table(self) -> str:
        return f"lake.continuous.{self.name}"

    @property
    def identifier(self) -> TableIdentifier:
        return TableIdentifier.parse(self.table)

    @property
    def dag(self) -> str:
        return self.identifier.workflow_id

    def define(self, text: str) -> None:
        """Write the file of its definition; ``live`` and ``FOLDER`` in it stand for its name and folder."""
        self.stack.airflow.define(self.file.name, text.replace("live", self.name).replace("FOLDER", str(self.folder)))

    def begin(self, text: str, number: int = 1) -> None:
        self.add(number)
        self.define(text)
        until("DAG", lambda: self.stack.get("/dags", dag_id_pattern=self.dag)["total_entries"], LIMIT)
        self.stack.unpause(self.dag)

    def pause(self) -> None:
        """Pause the DAG, and wait until the loop made an end; for up to a minute more Airflow calls the run running."""
        self.stack.pause(self.dag)
        until(f"end of the loop of {self.name}", lambda: not self.tasks("queued", "running"), LIMIT)
        assert self.stack.runs(self.dag, state="failed") == []
        assert self.stages() == []

    def add(self, number: int, folder: str = "rows", *, nap: bool = False) -> None:
        """Let a file with one row appear; a job that comes to it takes a ``nap`` until it is woken."""
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        hidden = self.folder / folder / f".{number}.json"
        hidden.write_text(json.dumps({self.column: number, "nap": int(nap)}) + "\n")
        hidden.rename(self.folder / folder / f"{number}.json")

    def wake(self) -> None:
        (self.folder / "awake").touch()

    def until_rows(self, *numbers: int) -> None:
        until(f"rows {numbers} of {self.name}", lambda: self.rows() == list(numbers), LIMIT)

    def rows(self) -> list[Any]:
        rows = self.stack.airflow.rows(self.table, limit=10_000) if self.committed() else []
        return sorted(row[self.column] for row in rows)

    def history(self) -> list[Refresh]:
        return self.stack.airflow.refreshes(self.table)

    def committed(self) -> list[Refresh]:
        return [refresh for refresh in self.history() if refresh.state is RefreshState.SUCCEEDED]

    def stages(self) -> list[str]:
        return self.stack.airflow.stages(self.table)

    def check_history(self) -> None:
        """Every version is one refresh that succeeded: none is missing or there twice, and none goes back in time."""
        made = {refresh.version: refresh for refresh in self.committed()}
        assert sorted(filter(None, made)) == list(range(1, len(self.committed()) + 1))
        with self.stack.airflow.workspace() as workspace:
            kept = workspace.table(self.identifier, "iceberg").versions()  # of most minutes only the last one
        assert [version.token for version in kept] == [made[version.number].token for version in kept]
        assert kept[-1].number == len(made)
        times = [made[number].data_timestamp or made[number].schedule_time for number in range(1, len(made) + 1)]
        assert times == sorted(times)

    def told(self) -> list[str]:
        events = self.stack.get("/assets/events", name_pattern=f"dynamic-table://lake/continuous/{self.name}", limit=100)
        return [event["extra"]["refresh"] for event in events["asset_events"]]

    def tasks(self, *states: str) -> list[dict[str, Any]]:
        tasks = [self.stack.task(self.dag, run["dag_run_id"]) for run in self.stack.runs(self.dag, state="running")]
        return [task for task in tasks if task["state"] in states]

    def task(self) -> psutil.Process | None:
        with suppress(psutil.NoSuchProcess):
            return next((psutil.Process(task["pid"]) for task in self.tasks("running") if task["pid"]), None)
        return None

    def kill_task(self) -> bool:
        """``kill -9`` the process of the task that runs."""
        task = self.task()
        with suppress(psutil.NoSuchProcess):
            if task is not None:
                task.kill()
        return task is not None

    def drain(self) -> bool:
        """End the task that runs as who shuts a worker down does: SIGTERM to its supervisor."""
        task = self.task()
        supervisor = task.parent() if task is not None else None
        if supervisor is None:
            return False
        assert "LocalExecutor" in " ".join(supervisor.cmdline())
        supervisor.terminate()
        return True

    def said(self, text: str) -> bool:
        path = "/dags/{}/dagRuns/{}/taskInstances/refresh/logs/{}"
        logs = [
            self.stack.api.get(path.format(self.dag, task["dag_run_id"], task["try_number"])) for task in self.tasks("running")
        ]
        return any(text in log.text for log in logs if log.is_success)

    def times_said(self, text: str) -> int:
        runs = [run["dag_run_id"] for run in self.stack.runs(self.dag)]
        tries = [(run, number + 1) for run in runs for number in range(self.stack.task(self.dag, run)["try_number"])]
        return sum(self.stack.log(self.dag, run, number).count(text) for run, number in tries)

    def ends(self) -> list[str]:
        over = self.stack.runs(self.dag, state="success", run_type="scheduled")
        path = "/dags/{}/dagRuns/{}/taskInstances/refresh/xcomEntries/return_value"
        values = [self.stack.api.get(path.format(self.dag, run["dag_run_id"]), params={"deserialize": True}) for run in over]
        return [str(value.json().get("value")) for value in values if value.is_success]

    def entry(self) -> CatalogDynamicTable:
        with self.stack.airflow.workspace() as workspace:
            entry = workspace.catalog("lake").get_table(self.identifier.path)
        assert isinstance(entry, CatalogDynamicTable)
        return entry
