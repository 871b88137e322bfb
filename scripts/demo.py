"""``make demo``: the main job on real input, start to end.

TPC-H data, the definitions in ``dags/definitions``, and the DAGs that the factory makes of them, run by Airflow for last
midnight with real Spark; then what became of it. ``make demo CATALOG=hive`` does it in a Hive metastore.
``demo.py sql cold`` runs every job by spark-submit, and not on a server that stays warm.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from demo_hive import running_metastore, write_hive_dags
from demo_home import BIN, DAGS, DATA, HOME, LOGS, SCALE, environment, settings, yesterday
from demo_postgres import airflow_database
from demo_spark import warm_spark
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from tpch import write_tpch

from airflow_dynamic_tables.clients.processes import machine
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.services.settings import embedded_settings, find_catalogs_file
from airflow_dynamic_tables.services.status import sample, show_table
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

ROWS = 3

console = Console(soft_wrap=True)


def main() -> int:
    """Run the demo with the catalog that is named; ended by a signal, it leaves no process behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    LOGS.mkdir(parents=True, exist_ok=True)
    catalog, *others = sys.argv[1:] or ["sql"]
    if others not in ([], ["cold"]) or catalog not in ("sql", "hive"):
        sys.exit("make demo takes CATALOG=sql or CATALOG=hive.")
    is_warm = bool(machine()) and not others
    if catalog == "sql":
        run(HOME, DAGS, is_warm)
        console.print("  make airflow                     start Airflow with these DAGs; it prints address and login")
        console.print("  dags/definitions/*.yaml          add a table: its DAG appears by itself")
        console.print("  .venv/bin/dynamic-tables --help  the same from the command line")
        return 0
    home = HOME / "hive"
    with ExitStack() as stack:
        with step("a Hive metastore on this machine"):
            uri = stack.enter_context(running_metastore(home / "metastore"))
        run(home, write_hive_dags(uri, home), is_warm)
    console.print("  docs/hive.md                     a metastore of your own; Spark, Hive and Trino on the same tables")
    return 0


def run(home: Path, dags: Path, is_warm: bool) -> None:
    """Refresh all tables; progress on the screen, Airflow's and Spark's own output in log files.

    :param is_warm: whether tables share a Spark server, or each has a spark-submit of its own.
    """
    started = time.monotonic()
    last_day = yesterday()
    with step(f"TPC-H data, scale {SCALE}, up to {last_day}, in .demo/tpch"):
        write_tpch(DATA, BIN / "tpchgen-cli", SCALE, last_day)
    definitions = dags / "definitions"
    tables = load_definitions(definitions).topological()
    environ = environment(settings(home, dags, is_warm))
    os.environ.update({name: environ[name] for name in ("AIRFLOW_HOME", "PATH")})
    with ExitStack() as stack:
        if is_warm:
            stack.enter_context(warm_spark(environ))
        with step("airflow db migrate"):
            environ |= stack.enter_context(airflow_database(home))
            airflow("db-migrate", environ, "db", "migrate")
        # One tick for all: a child whose tick is a midnight later would wait for its parent's next one.
        tick = json.dumps({"schedule_time": f"{last_day + timedelta(days=1)} 00:00:00"})
        for table in tables:
            dag_id = table.identifier.workflow_id
            with step(f"airflow dags test {dag_id}"):
                airflow(dag_id, environ, "dags", "test", dag_id, "--conf", tick)
    with open_workspace(embedded_settings(environ, find_catalogs_file(definitions))) as workspace:
        for table in tables:
            report(workspace, table)
        spark = [seconds for table in tables for seconds in spark_seconds(workspace, table)]
    if is_warm and len(spark) > 1:
        console.print(f"\nSpark took {spark[0]:.1f} s for the first table, cold, and {spark[-1]:.1f} s for the last one, warm.")
    console.print(f"\n[bold green]{len(tables)} dynamic tables are fresh[/] after {time.monotonic() - started:.0f} s. What next:")


@contextmanager
def step(what: str) -> Iterator[None]:
    """Show that something runs, then how long it took."""
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what)
        yield
    console.print(f"[green]ok[/] {what} [dim]({time.monotonic() - started:.1f} s)[/]")


def airflow(name: str, environ: dict[str, str], *arguments: str) -> None:
    """Run an airflow command, its output in a log file; ends the demo when it fails."""
    log = LOGS / f"{name}.log"
    with log.open("w") as stream:
        command = [str(BIN / "airflow"), *arguments]
        ended = subprocess.run(command, env=environ, stdout=stream, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        console.print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:]), markup=False)
        console.print(f"[bold red]airflow {' '.join(arguments)} failed[/]; the whole log is in {log}")
        sys.exit(1)


def spark_seconds(workspace: Workspace, table: DynamicTable) -> list[float]:
    """How long Spark took for the refresh of a table just now; nothing, when there was nothing to refresh."""
    latest = next(iter(workspace.ledger.list_refreshes(table.identifier, limit=1)), None)
    return [latest.seconds["spark"]] if latest and latest.version and "spark" in latest.seconds else []


def report(workspace: Workspace, table: DynamicTable) -> None:
    """The first rows of a table, its version, and how long each step of its refresh took."""
    details = show_table(workspace, table.identifier, limit=1)
    rows = sample(workspace, table.identifier, ROWS)
    refresh = next(iter(details.refreshes))
    console.print(f"\n[bold]{table.identifier}[/] version {details.versions[0].number}, {refresh.reason}")
    if refresh.version:  # a table that make airflow has brought further already is left alone
        steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in refresh.seconds.items() if "." not in name)
        console.print(f"[dim]{refresh.rows} rows in {refresh.files} files; {steps}[/]")
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(*map(str, row.values()))
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())
