"""`dynamic-tables list` of 1,000 tables that have a version each: a complete process, and the look alone.

The tables are Iceberg tables in the embedded catalog. In every file the other nine read the first one, which has a version more
than they read. The versions are committed as refreshes commit them, by a job that writes no row: a listing never reads data. The
clock is that of the processor, as in `bench_diff.py`.
"""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from measure import check, interleave

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

TABLES = 1000
TABLES_PER_FILE = 10
ROUNDS = 7
COLUMNS = (Column("ds", "string"), Column("country", "string"), Column("amount", "bigint"))

LOOK = """
import os, sys, time
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import list_tables
from airflow_dynamic_tables.services.workspace import open_workspace
definitions = open_project(sys.argv[1]).load()[0]
with open_workspace(embedded_settings(os.environ, None)) as workspace:
    started = time.process_time()
    listed = list_tables(workspace, definitions.tables)
    print(sum(table.version is not None for table in listed.tables), time.process_time() - started)
"""


def main() -> None:
    """Write the definitions, make the versions, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        definitions = Path(folder) / "definitions"
        definitions.mkdir()
        for first in range(0, TABLES, TABLES_PER_FILE):
            (definitions / f"tables_{first:04d}.yaml").write_text(_definitions_of(Path(folder), first))
        environ = {**os.environ, "AIRFLOW_HOME": folder, "DYNAMIC_TABLES_CACHE": f"{folder}/cache"}
        _make_versions(definitions, environ)
        _run(definitions, environ)
        measured = interleave(ROUNDS, command=lambda: _run(definitions, environ), look=lambda: _look(definitions, environ))
    check(f"dynamic-tables list of {TABLES} tables with versions", measured["command"], "s", 1.5)
    check("  of it the look", measured["look"], "s", 0.8)


def _definitions_of(folder: Path, first: int) -> str:
    """A file of tables, whose first one reads the source."""
    tables = "".join(_table(number, "raw.orders" if number == first else _name(first)) for number in _of_file(first))
    source = f"{{name: raw.orders, format: csv, path: {folder}/orders, schema: 'ds string, country string, amount int'}}"
    sources = f"sources:\n  - {source}\n" if first == 0 else ""
    return f"defaults: {{catalog: lake, database: bench, start_date: 2024-01-01}}\n{sources}dynamic_tables:\n{tables}"


def _of_file(first: int) -> range:
    return range(first, first + TABLES_PER_FILE)


def _name(number: int) -> str:
    return f"table_{number:04d}"


def _table(number: int, reads: str) -> str:
    return f"""  - name: {_name(number)}
    comment: Revenue per day and country, number {number}
    freshness: 1 day
    partitioned_by: [ds]
    options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
    query: SELECT ds, country, sum(amount) AS amount FROM {reads} GROUP BY ds, country
"""


def _make_versions(definitions: Path, environ: dict[str, str]) -> None:
    """Refresh every table once, and those that others read once more; takes minutes."""
    logging.disable(logging.WARNING)  # of queries that return no row
    source = definitions.parent / "orders"
    source.mkdir()
    (source / "part-0.csv").write_text("2024-01-01,DE,1\n")
    defined = open_project(str(definitions)).load()[0]
    tables = defined.topological()
    with open_workspace(embedded_settings(environ, None)) as workspace:
        for number, table in enumerate([*tables, *(table for table in tables if table.identifier.table.endswith("0"))]):
            request = RefreshRequest(
                table, defined.sources, datetime.now(UTC), f"version-{number}", "benchmark", full_refresh=True
            )
            run(workspace, request, _write_nothing)


def _write_nothing(plan: RefreshPlan) -> None:
    """The job of a query that returns no row."""
    write_text(plan.result_location, RefreshResult(plan.token, "bench", 0, (), COLUMNS).to_json())


def _run(definitions: Path, environ: dict[str, str]) -> float:
    """Seconds that the command takes; it has to find a version of every table."""
    line = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", "list", "--definitions", str(definitions)]
    started = _children()
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=True)
    seconds = _children() - started
    if done.stdout.count("SUCCEEDED") != TABLES:
        raise RuntimeError(done.stdout[:1000] + done.stderr)
    return seconds


def _children() -> float:
    """Seconds of processor that processes took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _look(definitions: Path, environ: dict[str, str]) -> float:
    """Seconds of a look, in a process that has imported everything and read the definitions."""
    line = [sys.executable, "-c", LOOK, str(definitions)]
    done = subprocess.run(line, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    count, seconds = done.stdout.split()
    if int(count) != TABLES:
        raise RuntimeError(f"{count} of {TABLES} have their version")
    return float(seconds)


if __name__ == "__main__":
    main()
