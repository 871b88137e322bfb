"""Incremental refreshes against complete ones, and the decision that no change has an effect.

One source with a partition a day, and a table of totals by day over it: some days change. Another source to which the rows of a
day are appended, and tables over all its rows: only the new rows are computed. And a table that joins the sales of each day with
a dimension of products, of which each is sold on some days: one product changes. Both sides run on one warm Spark server, so that
start-up counts for neither. The figures are the seconds of Spark, as the history has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from measure import check, compare, interleave

DAYS = int(os.environ.get("BENCH_DAYS", "365"))
ROWS = int(os.environ.get("BENCH_ROWS", "200000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
CHANGED = (1, 7, 30)
MERGED = {"segments": 0.10, "newest": 0.15, "amounts": 0.10}
"""Tables to which the rows of a day are merged, with the targets of their ratios."""
PRODUCTS = 10_000
A_DAY = 3 * PRODUCTS // DAYS
"""Number of products that are sold on a day, so that each is sold on three days or so."""
FIRST = date(2024, 1, 1)

TABLE = """
sources:
- name: lake.raw.events
  format: parquet
  path: {folder}/events
  schema: "customer bigint, amount bigint"
  partitioned_by: [ds]
- name: lake.raw.log
  format: delta
  path: {folder}/log
- name: lake.raw.sales
  format: delta
  path: {folder}/sales
- name: lake.raw.products
  format: delta
  path: {folder}/products
dynamic_tables:
- name: lake.sales.categories
  freshness: 1 day
  refresh_mode: incremental
  on_change: {{lake.raw.products: affected}}
  partitioned_by: [ds]
  query: |
    SELECT s.ds, p.category, count(*) AS rows, sum(s.amount) AS amount
    FROM lake.raw.sales s JOIN lake.raw.products p ON s.product = p.id GROUP BY s.ds, p.category
- name: lake.sales.segments
  freshness: 1 day
  refresh_mode: incremental
  query: SELECT customer % 1000 AS segment, count(*) AS rows, sum(amount) AS amount FROM lake.raw.log GROUP BY customer % 1000
- name: lake.sales.newest
  freshness: 1 day
  refresh_mode: incremental
  query: SELECT * FROM lake.raw.log QUALIFY row_number() OVER (PARTITION BY customer ORDER BY at DESC) = 1
- name: lake.sales.amounts
  freshness: 1 day
  refresh_mode: incremental
  query: SELECT customer, amount * 2 AS amount FROM lake.raw.log WHERE amount > 3
- name: lake.sales.totals
  freshness: 1 day
  refresh_mode: incremental
  partitioned_by: [ds]
  query: |
    SELECT ds, customer % 1000 AS segment, count(DISTINCT customer) AS customers, sum(amount) AS amount
    FROM lake.raw.events WHERE ds >= '{since}' GROUP BY ds, customer % 1000
"""

DECIDE = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.live_plans import live_plan
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

definitions = load_definitions(Path(sys.argv[1]))
(table,) = (table for name, table in definitions.tables.items() if name.table == "totals")
with open_workspace(embedded_settings(os.environ)) as workspace:
    plan = preview(table, datetime.now(UTC), definitions.sources)
    for _ in range(2):
        started = time.perf_counter()
        live = live_plan(workspace, plan, table, definitions)
        seconds = time.perf_counter() - started
assert live.action == "NO_DATA", live
print(seconds)
"""


class Project:
    """A source of many days and a table over it, refreshed by commands."""

    def __init__(self, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES", "SPARK"))}
        self.folder = folder
        self.environ = {**kept, "AIRFLOW_HOME": str(folder)}
        self.tables = folder / "dags" / "definitions" / "tables.yaml"
        self.tables.parent.mkdir(parents=True)
        self.tables.write_text(TABLE.format(folder=folder, since=FIRST))
        self.files = 0
        self.days = 0
        self.products = 0
        for number in range(DAYS):
            self.write(number, ROWS)
            self.append()
            self.sell(number)
        numbers = pa.array(range(PRODUCTS), pa.int64())
        write_deltalake(folder / "products", pa.table({"id": numbers, "category": numbers}))

    def sell(self, day: int) -> None:
        """Write the sales of a day; the products of the following days are partly the same."""
        first = day * PRODUCTS // DAYS
        columns = {
            "ds": pa.repeat(str(FIRST + timedelta(days=day)), ROWS),
            "product": pa.array(((first + number % A_DAY) % PRODUCTS for number in range(ROWS)), pa.int64()),
            "amount": pa.array(range(ROWS), pa.int64()),
        }
        write_deltalake(self.folder / "sales", pa.table(columns), partition_by=["ds"], mode="append")

    def reclassified(self) -> float:
        """Change the category of one product, and refresh the days on which it was sold."""
        self.products += 1
        DeltaTable(self.folder / "products").update(predicate=f"id = {self.products * 997 % PRODUCTS}", updates={"category": "7"})
        return self.refresh(table="categories", action="PARTITIONS")

    def write(self, day: int, rows: int) -> None:
        """Add a file to a day, which looks as old as a file of an hour ago."""
        self.files += 1
        file = self.folder / "events" / f"ds={FIRST + timedelta(days=day)}" / f"{self.files}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        numbers = pa.array(range(self.files, self.files + rows), pa.int64())
        pq.write_table(pa.table({"customer": numbers, "amount": numbers}), file)
        stamp = datetime.now(UTC).timestamp() - 3600 + self.files
        os.utime(file, (stamp, stamp))

    def append(self) -> None:
        """Append the rows of a day to the log, of customers of whom most are in it already."""
        self.days += 1
        customers = pa.array((number * 7919 % (20 * ROWS) for number in range(self.days * 31, self.days * 31 + ROWS)), pa.int64())
        numbers = pa.array(range(self.days * ROWS, (self.days + 1) * ROWS), pa.int64())
        write_deltalake(self.folder / "log", pa.table({"customer": customers, "amount": numbers, "at": numbers}), mode="append")

    def run(self, *words: str) -> str:
        """Run a command; return what it printed."""
        command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", *words]
        return subprocess.run(command, cwd=self.folder, env=self.environ, check=True, capture_output=True, text=True).stdout

    def refresh(self, *options: str, table: str = "totals", action: str = "FULL") -> float:
        """Refresh a table; return the seconds of Spark."""
        done = json.loads(self.run("refresh", table, "--output", "json", *options))
        if done["action"] not in (action, "INITIALIZE"):
            raise RuntimeError(f"{done['action']}: {done['reason']}")
        return float(done["seconds"]["spark"])

    def merged(self, table: str) -> float:
        """Append a day, and merge it into a table."""
        self.append()
        return self.refresh(table=table, action="MERGE")

    def changed(self, days: int) -> float:
        """Change some days and refresh them."""
        for day in range(days):
            self.write(day * (DAYS // days), 100)
        return self.refresh(action="PARTITIONS")

    def decision(self) -> float:
        """Return the milliseconds in which a warm process finds that nothing changed."""
        command = [sys.executable, "-c", DECIDE, str(self.tables)]
        done = subprocess.run(command, cwd=self.folder, env=self.environ, check=True, stdout=subprocess.PIPE, text=True)
        return float(done.stdout) * 1000


def main() -> None:
    """Measure the refreshes of some days against complete ones, then the decision."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"{DAYS} days of {ROWS:,} rows", flush=True)
        project = Project(Path(folder))
        project.run("spark", "start")
        try:
            project.refresh("--full-refresh")
            measured = interleave(
                ROUNDS,
                **{f"changed_{days}": lambda days=days: project.changed(days) for days in CHANGED},
                full=lambda: project.refresh("--full-refresh"),
            )
            for table in MERGED:
                project.refresh("--full-refresh", table=table)
                measured |= interleave(
                    ROUNDS,
                    **{
                        f"merged_{table}": lambda table=table: project.merged(table),
                        f"full_{table}": lambda table=table: project.refresh("--full-refresh", table=table),
                    },
                )
            project.refresh("--full-refresh", table="categories")
            measured |= interleave(
                ROUNDS,
                one_product=project.reclassified,
                full_categories=lambda: project.refresh("--full-refresh", table="categories"),
            )
            time.sleep(3)  # a file that has just been written is read again
            decisions = [project.decision() for _ in range(ROUNDS)]
            project.write(-1, 100)
            excluded = [project.decision() for _ in range(ROUNDS)]
        finally:
            project.run("spark", "stop")
    for days in CHANGED:
        target = days / DAYS + 0.01
        compare(f"{days} of {DAYS} days changed", measured[f"changed_{days}"], measured["full"], "all rows", target)
    for table, target in MERGED.items():
        what = f"a day merged into {table} of {DAYS} days"
        compare(what, measured[f"merged_{table}"], measured[f"full_{table}"], "all rows", target)
    what = f"one of {PRODUCTS:,} rows of a dimension changed, of {DAYS} days"
    compare(what, measured["one_product"], measured["full_categories"], "all rows", 0.10)
    check(f"the decision that none of {DAYS} days changed", decisions, "ms", 200)
    check("the decision that the query reads none of the days that changed", excluded, "ms", 200)


if __name__ == "__main__":
    main()
