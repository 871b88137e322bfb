"""``spark``: a warm Spark server and a class data archive, which make Spark start faster on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import DEBUG, OUTPUT, STATE, Argument
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.new_project import TABLE, write_project
from airflow_dynamic_tables.cli.running import FAILED, OK, progress_of
from airflow_dynamic_tables.cli.state import settings_of
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import State, Status, start, status, stop
from airflow_dynamic_tables.runners.spark_home import store

_WRONG = {
    State.HUNG: "The Spark server does not answer; end it with: dynamic-tables spark stop",
    State.DIED: "The Spark server has died; start another one with: dynamic-tables spark start",
}


@command(
    "spark start",
    "start the server, or find the running one",
    (
        Argument(
            ("--idle",),
            "stop it after this time without use, or never (default: 2 hours)",
            {"metavar": "TIME", "type": argument_types.idle_time, "default": "2 hours"},
        ),
        Argument(
            ("--master",),
            "how many cores it uses, e.g. local[2] (default: local[*], all)",
            {"metavar": "URL", "type": argument_types.local_master, "default": "local[*]"},
        ),
        Argument(("--driver-memory",), "memory of its Java, e.g. 4g (default: Spark's own)", {"metavar": "SIZE"}),
        Argument(("--jars",), "jars that its queries need, separated by commas, for example JDBC drivers", {"metavar": "FILES"}),
        *STATE,
        OUTPUT,
    ),
)
def start_server(arguments: Namespace) -> int:
    """Start Spark's Connect server for this user and state, or find the running one.

    Options count when it starts. It requires a random token, listens on loopback only, and stops after a time without
    use. A server that hangs is replaced.
    """
    folder = _folder(arguments)
    with progress_of(arguments).step("Starting the Spark server"):
        _, is_new = start(folder, Options(arguments.master, arguments.driver_memory, arguments.idle, arguments.jars))
    print("The Spark server was started." if is_new else "The Spark server runs already.", file=sys.stderr)
    _print(status(folder), arguments.output)
    return OK


@command("spark stop", "stop the server and everything that it runs", STATE)
def stop_server(arguments: Namespace) -> int:
    """Stop the server and everything that it runs. It is killed if it does not stop within 20 seconds."""
    with progress_of(arguments).step("Stopping the Spark server"):
        was_running = stop(_folder(arguments))
    print("The Spark server was ended." if was_running else "No Spark server runs.", file=sys.stderr)
    return OK


@command("spark status", "show whether the server runs, its address, and how long it has been idle", (*STATE, OUTPUT))
def show_server(arguments: Namespace) -> int:
    """Show the server: running, stopped, changing (a command starts or stops it), hung (it does not answer) or died.

    Exits with 1 for the last two.
    """
    found = status(_folder(arguments))
    _print(found, arguments.output)
    if found.state in _WRONG:
        print(_WRONG[found.state], file=sys.stderr)
        return FAILED
    return OK


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The file of the classes that Spark loads."""

    archive: str
    bytes: int


@command("spark archive", "make Spark start faster on this machine: store the classes that Java loads", (OUTPUT, DEBUG))
def store_classes(arguments: Namespace) -> int:
    """Run a small refresh, and store the classes that it loads as Java has them in memory, 170 MB in the user's folder of
    caches.

    Every spark-submit and every Spark server that this package starts uses them from then on. Needed once for each
    machine or image, and after an update of Java or Spark: Java ignores what does not fit.
    """
    print("A small refresh runs, and Java stores the classes that it loaded: about a minute.", file=sys.stderr)
    with progress_of(arguments).step("Running a small refresh"):
        archive = store(os.environ, _refresh_a_new_project)
    output.record(ClassArchive(str(archive), archive.stat().st_size), arguments.output)
    print("Every spark-submit and every Spark server that is started here from now on uses it.", file=sys.stderr)
    return OK


def _refresh_a_new_project(environ: dict[str, str]) -> None:
    """Refresh the table of a new project by spark-submit, without anything of this installation."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES"))}
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), date(2024, 1, 31))
        command = (
            sys.executable,
            "-m",
            "airflow_dynamic_tables.cli.main",
            "refresh",
            TABLE,
            "--full-refresh",
            "--master",
            "local[1]",
        )
        environ = {**kept, "AIRFLOW_HOME": folder}
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobFailedError(f"The small refresh failed: {done.stderr.strip()}")


def _folder(arguments: Namespace) -> ServerFolder:
    return ServerFolder.of(settings_of(arguments).database_url)


def _print(found: Status, form: str) -> None:
    if form != "table":
        output.record(found, form)
        return
    shown = {name: value for name, value in items(found).items() if value is not None}
    durations = {name.removesuffix("_seconds"): timedelta(seconds=shown.pop(name)) for name in list(shown) if "seconds" in name}
    output.lines({**shown, "state": found.state.value, **durations})
