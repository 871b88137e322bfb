"""The start of short commands: ``dynamic-tables validate`` of one file, and the begin of a scheduled refresh.

Both are measured in processor seconds, which a busy machine does not blur, and include the libraries that they import. The table
is in an embedded ``sql`` catalog, and its file was read before.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import check, interleave

ROUNDS = 7

TABLE = "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 day, query: SELECT 1 AS x}]\n"

BEGIN = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path

from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

definitions = load_definitions(Path(sys.argv[1]))
table = next(iter(definitions.tables.values()))
at, token = datetime(2024, 1, 1, tzinfo=UTC), str(time.time_ns())
request = RefreshRequest(table, definitions.sources, at, token, "bench", is_scheduled=True)
with open_workspace(embedded_settings(os.environ)) as workspace:
    started = time.process_time()
    begin(workspace, request)
    print(time.process_time() - started)
"""


def main() -> None:
    """Create the table, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        definitions = Path(folder) / "dags" / "definitions" / "tables.yaml"
        definitions.parent.mkdir(parents=True)
        definitions.write_text(TABLE)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES"))},
            "AIRFLOW_HOME": folder,
            "DYNAMIC_TABLES_CACHE": f"{folder}/cache",
        }
        command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main"]
        _run([*command, "create"], environ)
        time.sleep(3)  # a file that has just been written is read again
        _run([*command, "validate"], environ)
        measured = interleave(
            ROUNDS,
            validate=lambda: _processor_seconds([*command, "validate"], environ),
            begin=lambda: float(_run([sys.executable, "-c", BEGIN, str(definitions)], environ)),
        )
    check("dynamic-tables validate of one file", measured["validate"], "s", 0.8)
    check("begin of a scheduled refresh", measured["begin"], "s", 0.4)


def _processor_seconds(command: list[str], environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(command, environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(command: list[str], environ: dict[str, str]) -> str:
    done = subprocess.run(command, env=environ, cwd=environ["AIRFLOW_HOME"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
