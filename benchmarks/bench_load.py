"""1,000 definitions into DAGs, against dag-factory 1.1.0 building as many DAGs of one spark-submit task each.

Every measurement is a process of its own with everything imported before the clock starts, as in Airflow, whose DAG
processor imports once and forks. The clock is that of the processor: the work is done by one thread and waits for nothing,
and so a busy machine does not blur it. Ours is measured with the cache of analysed queries that a second parse finds; the first
parse, without it, is printed too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from many_tables import definitions_of
from measure import check, compare, interleave

DAGS = 1000
DAGS_PER_FILE = 10
ROUNDS = 7

# Airflow imports half of itself when the first DAG and the first asset are made, whoever makes them.
IMPORTS = """
import sys, time
import airflow.providers.apache.spark.operators.spark_submit
from airflow.sdk import DAG, Asset
DAG("first", schedule=None), Asset("first", uri="first://asset")
"""

OURS = f"""{IMPORTS}
from pathlib import Path
from airflow_dynamic_tables.dag_factory import load_dynamic_tables
found, started = {{}}, time.process_time()
load_dynamic_tables(found, Path(sys.argv[1]), maintenance=False)
print(len(found), time.process_time() - started)
"""

RIVAL = f"""{IMPORTS}
from dagfactory import load_yaml_dags
found, started = {{}}, time.process_time()
load_yaml_dags(found, dags_folder=sys.argv[1], defaults_config_path=sys.argv[1])
print(len(found), time.process_time() - started)
"""


def main() -> None:
    """Write both kinds of definitions, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        ours, rival = home / "ours", home / "rival"
        for number in range(0, DAGS, DAGS_PER_FILE):
            numbers = range(number, number + DAGS_PER_FILE)
            _write(ours / f"tables_{number:04d}.yaml", definitions_of(numbers))
            _write(rival / f"dags_{number:04d}.yaml", _rival_file(numbers))
        environ = {
            **os.environ,
            "AIRFLOW_HOME": folder,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "DYNAMIC_TABLES_CACHE": str(home / "cache"),
        }
        own_dag = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "dynamic_table__lake__bench__table_0500"}
        first = _seconds(OURS, ours, environ, DAGS)
        # A file that was written a moment ago is read again, for it may still change: the second parse settles it.
        subprocess.run(["sleep", "3"], check=True)
        _seconds(OURS, ours, environ, DAGS)
        measured = interleave(
            ROUNDS,
            ours=lambda: _seconds(OURS, ours, environ, DAGS),
            rival=lambda: _seconds(RIVAL, rival, environ, DAGS),
            one=lambda: _seconds(OURS, ours, {**environ, **own_dag}, 1),
        )
    print(f"{DAGS} definitions, first parse of all: {first:.3g} s")
    compare(f"{DAGS} definitions to DAGs", measured["ours"], measured["rival"], "dag-factory 1.1.0", 1 / 3)
    check(f"the one DAG of a task, of {DAGS} definitions", [seconds * 1000 for seconds in measured["one"]], "ms", 50)


def _seconds(program: str, folder: Path, environ: dict[str, str], expected: int) -> float:
    """Run a program that prints how many DAGs it made and how long that took."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    count, seconds = done.stdout.splitlines()[-1].split()
    if int(count) != expected:
        raise RuntimeError(f"{count} DAGs instead of {expected}")
    return float(seconds)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _rival_file(numbers: range) -> str:
    return "".join(_rival_dag(number) for number in numbers)


def _rival_dag(number: int) -> str:
    return f"""table_{number:04d}:
  default_args: {{owner: airflow, start_date: 2024-01-01, retries: 3, retry_delay_sec: 300}}
  schedule: "0 0 * * *"
  catchup: false
  max_active_runs: 1
  description: Revenue per day and country, number {number}
  tags: [dynamic-table]
  tasks:
    - task_id: refresh
      operator: airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator
      application: /jobs/table.py
      application_args: ["--table", "table_{number:04d}", "--ds", "{{{{ ds }}}}"]
      conf: {{spark.executor.memory: 4g}}
      conn_id: spark_default
"""


if __name__ == "__main__":
    main()
