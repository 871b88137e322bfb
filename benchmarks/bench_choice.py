"""Whether incremental refreshes choose the cheaper way: to merge the new rows, or to replace the changed partitions.

Each case has a generated source, a query of groups or of the newest rows, and a change. Its choice is recorded twice: by bytes,
as for a table without history, and by the durations of the first changes. Then both ways are done, by two tables over the same
source, on one warm Spark. The cost is the CPU time of this process and of Spark, which other work on the machine changes least.
A choice is right if it cost no more than the other one; if they differ by at most a tenth or a second, both are. At the end of
each case, all rows are computed again, and their seconds are compared with those that the saved cost of the last merge assumes.
``BENCH_CASES`` is the number of cases, ``BENCH_SEED`` the first one.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from unittest.mock import patch
from uuid import uuid4

import numpy as np
import psutil
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.merge_costs import ReadBytes, why_costlier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.jobs import batch
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.saved_costs import compared_refreshes
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

CASES = int(os.environ.get("BENCH_CASES", "100"))
SEED = int(os.environ.get("BENCH_SEED", "1"))
CHANGES = 3
"""Number of changes of each case, of which the median counts."""

MERGED, REPLACED = TableIdentifier("lake", "bench", "merged"), TableIdentifier("lake", "bench", "replaced")
QUERIES = {
    "groups": "SELECT {keys}k, count(*) AS c, sum(n) AS s, max(text) AS text FROM raw.facts GROUP BY {keys}k",
    "newest": "SELECT {keys}k, n, text FROM raw.facts QUALIFY row_number() OVER (PARTITION BY {keys}k ORDER BY n DESC) = 1",
}
WHY_COSTLIER = "airflow_dynamic_tables.services.refresh.merges.why_costlier"


@dataclass(frozen=True)
class Case:
    """A source, a query and a change; ``text`` is the number of bytes of a column."""

    query: str
    days: int
    rows: int
    keys: int
    text: int
    added: int

    @classmethod
    def of(cls, seed: int) -> Case:
        """Return the case of a seed."""
        chance = Random(seed)
        rows = int(10 ** chance.uniform(4.5, 6.8))
        return cls(
            query=chance.choice([*QUERIES]),
            days=chance.choice([0, 0, 1, 10]),
            rows=rows,
            keys=max(1, int(rows ** chance.uniform(0.2, 1.2))),
            text=chance.choice([0, 10, 50]),
            added=max(1, int(rows * 10 ** chance.uniform(-4, 0))),
        )

    def facts(self, first: int, rows: int) -> pa.Table:
        """Return rows, which are of the days in turn."""
        random = np.random.default_rng(first)
        numbers = np.arange(first, first + rows)
        days = [f"2024-02-{day + 1:02}" for day in range(max(1, self.days))]
        columns = {
            "ds": pa.DictionaryArray.from_arrays(pa.array(numbers % len(days), pa.int32()), pa.array(days)).cast(pa.string()),
            "k": pa.array(random.integers(0, self.keys, rows)),
            "n": pa.array(numbers),
            "text": _cut(random.bytes(rows * self.text // 2).hex(), self.text, rows),
        }
        return pa.table(columns)


def _cut(text: str, size: int, number: int) -> pa.Array:
    """Return consecutive texts of a size."""
    offsets = pa.array(np.arange(number + 1) * size, pa.int64())
    return pa.LargeStringArray.from_buffers(number, offsets.buffers()[1], pa.py_buffer(text.encode())).cast(pa.string())


class Bench:
    """The tables of a case."""

    def __init__(self, spark: SparkSession, case: Case, folder: Path) -> None:
        self._spark, self._case, self._folder = spark, case, folder
        self._written = 0
        settings = WorkspaceSettings(f"sqlite:///{folder}/state.db", f"file://{folder}/warehouse")
        self._workspace: Workspace = open_workspace(settings)
        self.read: ReadBytes | None = None
        """The bytes that the two ways of the last change read."""
        self.full_seconds: tuple[float, float] = 0, 0
        """The assumed and the measured seconds of a complete refresh."""
        self.durations: dict[TableIdentifier, list[float]] = {MERGED: [], REPLACED: []}
        self.costs: dict[TableIdentifier, list[float]] = {MERGED: [], REPLACED: []}

    def measure(self) -> None:
        """Do the changes of the case."""
        with self._workspace:
            self._write(self._case.rows)
            definitions = self._definitions()
            for name in self.costs:
                self._refresh(definitions, name, lambda *_: "")
            for _ in range(CHANGES):
                self._write(self._case.added)
                self._done(definitions, MERGED, self._merge, RefreshAction.MERGE)
                self._done(definitions, REPLACED, lambda *_: "to measure it", RefreshAction.PARTITIONS, RefreshAction.FULL)
            self._refresh(definitions, MERGED, lambda *_: "", is_complete=True)
            complete, merge, *_ = compared_refreshes(self._workspace.ledger.list_refreshes(MERGED))
            self.full_seconds = merge.full_seconds or 0, complete.seconds

    def _merge(self, _merges: Sequence[float], _others: Sequence[float], read: ReadBytes | None) -> str:
        self.read = read
        return ""

    def _done(self, definitions: Definitions, name: TableIdentifier, why: Callable[..., str], *actions: RefreshAction) -> None:
        before = _cpu_seconds()
        self._refresh(definitions, name, why)
        self.costs[name].append(_cpu_seconds() - before)
        done = self._workspace.ledger.list_refreshes(name)[0]
        if done.action not in actions:
            raise SystemExit(f"{self._case}: {done.action}, {done.reason}")
        self.durations[name].append(sum(value for step, value in done.seconds.items() if "." not in step))

    def _refresh(
        self, definitions: Definitions, name: TableIdentifier, why: Callable[..., str], *, is_complete: bool = False
    ) -> None:
        token, table, now = str(uuid4()), definitions.tables[name], datetime.now(UTC)
        request = RefreshRequest(
            table, definitions.sources, now, token, token, is_scheduled=not is_complete, full_refresh=is_complete
        )
        with patch(WHY_COSTLIER, why):
            run(self._workspace, request, lambda plan: batch.refresh(self._spark, plan, JvmDriver(self._spark)))

    def _write(self, rows: int) -> None:
        facts = self._case.facts(self._written, rows)
        write_deltalake(self._folder / "facts", facts, partition_by=["ds"] if self._case.days else None, mode="append")
        self._written += rows

    def _definitions(self) -> Definitions:
        query = QUERIES[self._case.query].format(keys="ds, " if self._case.days else "")
        keys = ["ds"] if self._case.days else []
        tables = [
            {"name": name.table, "freshness": "1 day", "refresh_mode": "incremental", "partitioned_by": keys, "query": query}
            for name in self.costs
        ]
        source = {"name": "lake.raw.facts", "format": "delta", "path": str(self._folder / "facts")}
        path = self._folder / "tables.yaml"
        defaults = {"catalog": "lake", "database": "bench"}
        path.write_text(json.dumps({"defaults": defaults, "sources": [source], "dynamic_tables": tables}))
        return load_definitions(path)


def _measured(spark: SparkSession, case: Case) -> Bench:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(spark, case, Path(folder))
        bench.measure()
    return bench


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started."""
    this = psutil.Process()
    times = [one.cpu_times() for one in (this, *this.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def main() -> None:
    """Measure the cases, print each and the share of right choices."""
    conf: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    right: dict[str, list[bool]] = {"bytes": [], "durations": []}
    exact: dict[str, list[bool]] = {"bytes": [], "durations": []}
    full: list[tuple[float, float]] = []
    try:
        _measured(spark, Case.of(SEED))  # the first refreshes load what all others find there
        for seed in range(SEED, SEED + CASES):
            case = Case.of(seed)
            bench = _measured(spark, case)
            merge, replacement = (statistics.median(bench.costs[name]) for name in (MERGED, REPLACED))
            chosen = {
                "bytes": not why_costlier([], [], bench.read),
                "durations": not why_costlier(bench.durations[MERGED], bench.durations[REPLACED], None),
            }
            for kind, is_merge in chosen.items():
                ours, other = (merge, replacement) if is_merge else (replacement, merge)
                exact[kind].append(ours <= other)
                right[kind].append(ours <= max(other * 1.1, other + 1))
            ways = ", ".join(f"{'merge' if is_merge else 'replace'} by {kind}" for kind, is_merge in chosen.items())
            verdict = "" if all(found[-1] for found in right.values()) else " WRONG"
            full.append(bench.full_seconds)
            assumed, done = full[-1]
            print(
                f"  {seed}: merge {merge:.2f} s, replacement {replacement:.2f} s; {ways}{verdict}; {bench.read}; "
                f"all rows {done:.2f} s, assumed {assumed:.2f} s; {case}",
                flush=True,
            )
    finally:
        spark.stop()
    for kind, found in right.items():
        share = sum(found) / len(found)
        verdict = "met" if share >= 0.95 else "MISSED"
        print(f"cheaper way chosen by {kind}: {share:.0%} of {len(found)} cases, target >= 95%: {verdict}")
        print(f"  {sum(exact[kind]) / len(found):.0%} if every difference counts")
    ratios = [assumed / done for assumed, done in full]
    total = sum(assumed for assumed, _ in full) / sum(done for _, done in full)
    near = sum(0.85 <= ratio <= 1.15 for ratio in ratios) / len(ratios)
    print(f"seconds of complete refreshes, assumed by the saved cost over measured: {total:.2f} of all, target 0.85 to 1.15")
    print(f"  median {statistics.median(ratios):.2f}, within 15% in {near:.0%} of the cases")


if __name__ == "__main__":
    main()
