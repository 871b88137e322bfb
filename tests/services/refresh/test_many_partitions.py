"""What a refresh costs grows as its partitions and files do: calls of functions and memory, counted at two sizes."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import show_table
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.benches.empty_catalogs import empty_catalog
from tests.support.pyarrow_job import Days, write_days

pytestmark = pytest.mark.large

FEW = 60
TIMES = 6
LIMIT = 1.3 * TIMES
"""Whatever grows as the square of the partitions takes many times as much as this."""

_NUMBERS = count(1)


@dataclass
class Cost:
    """Calls of functions in this thread, and bytes of memory at the most, of each step."""

    calls: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def measure(self, step: str, work: Callable[[], object]) -> None:
        calls = 0

        def called(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        tracemalloc.start()
        sys.setprofile(called)
        try:
            work()
        finally:
            sys.setprofile(None)
            self.memory[step] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        self.calls[step] = calls


@dataclass
class Table:
    workspace: Workspace
    folder: Path
    database: str
    options: str

    def cost(self, days: int, files: int) -> Cost:
        """Cost of each thing that is done to a new table of so many days, with so many files each."""
        rows = {f"day-{day:06d}": list(range(files)) for day in range(days)}
        request = self._request(f"numbers_{next(_NUMBERS)}")
        table = request.table.identifier
        cost = Cost()
        named = PartitionSet.of({"ds": day} for day in rows)
        one = dict(list(rows.items())[:1])
        cost.measure("first", lambda: self._refresh(request, rows, full_refresh=True))
        cost.measure("full", lambda: self._refresh(request, rows, full_refresh=True))
        cost.measure("named", lambda: self._refresh(request, rows, partitions=named))
        cost.measure("half empty", lambda: self._refresh(request, dict(list(rows.items())[::2]), partitions=named))
        cost.measure("one day", lambda: self._refresh(request, one, partitions=PartitionSet.of([{"ds": day} for day in one])))
        cost.measure("show", lambda: show_table(self.workspace, table))
        cost.measure("sweep", lambda: sweep(self.workspace))
        return cost

    def _request(self, name: str) -> RefreshRequest:
        file = self.folder / f"{name}.yaml"
        table = f'{{name: {name}, {self.options}, freshness: 1 day, partitioned_by: [ds], query: "SELECT 1 AS ds, 1 AS n"}}'
        file.write_text(f"defaults: {{catalog: lake, database: {self.database}}}\ndynamic_tables:\n- {table}\n")
        definition = load_definitions(file).tables[TableIdentifier("lake", self.database, name)]
        return RefreshRequest(definition, {}, datetime.now(UTC), "", "test")

    def _refresh(self, request: RefreshRequest, rows: Days, **asked: Any) -> None:
        request = RefreshRequest(request.table, {}, datetime.now(UTC), str(uuid4()), "test", **asked)
        run(self.workspace, request, partial(write_days, days=rows, scattered=True))


@pytest.fixture(
    params=[
        "sql/format: iceberg",
        "sql/format: delta",
        "sql/format: parquet, atomicity: none",
        pytest.param("hive/format: parquet", marks=[pytest.mark.metastore, pytest.mark.large]),
    ]
)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    kind, _, options = request.param.partition("/")
    with empty_catalog(kind, request, tmp_path) as (entry, _):
        file = tmp_path / "catalogs.yaml"
        file.write_text(json.dumps({"catalogs": [{"name": "lake", **entry}]}))
        settings = WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse", file)
        with open_workspace(settings) as workspace:
            yield Table(workspace, tmp_path, f"db_{uuid4().hex}", options)


def test_six_times_the_partitions_cost_six_times_as_much(table: Table) -> None:
    table.cost(1, 1)  # imports, and what else is done once
    few, many = table.cost(FEW, 1), table.cost(FEW * TIMES, 1)
    assert {step: calls for step, calls in many.calls.items() if calls > LIMIT * few.calls[step]} == {}
    assert {step: size for step, size in many.memory.items() if size > LIMIT * few.memory[step]} == {}


def test_six_times_the_files_cost_six_times_as_much(table: Table) -> None:
    table.cost(1, 1)
    few, many = table.cost(2, 10), table.cost(2, 10 * TIMES)
    assert {step: calls for step, calls in many.calls.items() if calls > LIMIT * few.calls[step]} == {}
    assert {step: size for step, size in many.memory.items() if size > LIMIT * few.memory[step]} == {}
