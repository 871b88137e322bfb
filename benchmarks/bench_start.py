"""Start of a command: ``airflow dynamic-tables list`` against ``airflow dags list``, each with one table that was parsed before.

What is measured is the processor time of the whole process, which a busy machine does not blur as it does the clock on the wall.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import compare, interleave

ROUNDS = 7

TABLE = "dynamic_tables: [{name: lake.sales.numbers, freshness: 1 day, query: SELECT 1 AS x}]\n"

LOADER = """from pathlib import Path

from airflow_dynamic_tables.dag_factory import load_dynamic_tables

load_dynamic_tables(globals(), Path(__file__).parent / "definitions")
"""


def main() -> None:
    """Make an Airflow home with a table that is in its catalog, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        dags = Path(folder) / "dags"
        (dags / "definitions").mkdir(parents=True)
        (dags / "definitions" / "tables.yaml").write_text(TABLE)
        (dags / "dynamic_tables.py").write_text(LOADER)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES"))},
            "AIRFLOW_HOME": folder,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "DYNAMIC_TABLES_CACHE": f"{folder}/cache",
        }
        for command in (["db", "migrate"], ["dags", "reserialize"], ["dynamic-tables", "create"]):
            _airflow(command, environ)
        measured = interleave(
            ROUNDS,
            ours=lambda: _airflow(["dynamic-tables", "list"], environ),
            rival=lambda: _airflow(["dags", "list"], environ),
        )
    compare("airflow dynamic-tables list", measured["ours"], measured["rival"], "airflow dags list", 1.5)


def _airflow(command: list[str], environ: dict[str, str]) -> float:
    """Run a command of Airflow in a folder without definitions; its processor time in seconds."""
    before = _processor_time()
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *command], env=environ, cwd=environ["AIRFLOW_HOME"], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return _processor_time() - before


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
