"""`dynamic-tables diff` of 1,000 unchanged tables: a whole process, from its start to its end, and the look alone.

The definitions are in the cache of analysed queries, as after `validate` or a parse by Airflow. The clock is that of the
processor: one thread does the work and waits for nothing but files, and so a busy machine does not blur it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from many_tables import definitions_of
from measure import check, interleave

TABLES = 1000
TABLES_PER_FILE = 10
ROUNDS = 7

LOOK = """
import os, sys, time
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.project import open_project
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
definitions = open_project(sys.argv[1]).load()[0]
with open_workspace(embedded_settings(os.environ, None)) as workspace:
    started = time.process_time()
    found = differences(workspace, definitions)
    print(sum(one.change is Change.UNCHANGED for one in found), time.process_time() - started)
"""


def main() -> None:
    """Write the definitions, deploy them, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        definitions = Path(folder) / "definitions"
        definitions.mkdir()
        for first in range(0, TABLES, TABLES_PER_FILE):
            (definitions / f"tables_{first:04d}.yaml").write_text(definitions_of(range(first, first + TABLES_PER_FILE)))
        environ = {**os.environ, "AIRFLOW_HOME": folder, "DYNAMIC_TABLES_CACHE": f"{folder}/cache"}
        _run("apply", definitions, environ)
        time.sleep(3)  # a file that was written a moment ago is read again, for it may still change: the next one settles it
        _run("diff", definitions, environ)
        measured = interleave(
            ROUNDS,
            command=lambda: _run("diff", definitions, environ),
            look=lambda: _look(definitions, environ),
        )
    check(f"dynamic-tables diff of {TABLES} unchanged tables", measured["command"], "s", 2)
    check("  of it the comparison with the catalog", measured["look"], "s", 1)


def _run(command: str, definitions: Path, environ: dict[str, str]) -> float:
    """Seconds that a command takes; it has to find every table unchanged, but for the first one."""
    line = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", command, "--definitions", str(definitions)]
    started = _children()
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=True)
    seconds = _children() - started
    if command == "diff" and f"{TABLES} unchanged" not in done.stderr:
        raise RuntimeError(done.stderr)
    return seconds


def _children() -> float:
    """Seconds of processor that processes took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _look(definitions: Path, environ: dict[str, str]) -> float:
    """Seconds of a comparison, in a process that has imported everything and read the definitions."""
    line = [sys.executable, "-c", LOOK, str(definitions)]
    done = subprocess.run(line, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    count, seconds = done.stdout.split()
    if int(count) != TABLES:
        raise RuntimeError(f"{count} of {TABLES} are unchanged")
    return float(seconds)


if __name__ == "__main__":
    main()
