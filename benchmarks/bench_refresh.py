"""One full refresh of TPC-H lineitem (scale factor 1) grouped by day, against the bare SELECT in spark-submit.

Ours is everything a task does: catalog and ledger, begin, plan, spark-submit, result, commit. The rival is a job of six lines
that overwrites a Parquet folder. Both run the same query with the same settings of Spark. Memory is that of the worker
process, with Airflow's operator imported; Spark is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import check, compare, interleave

SCALE = os.environ.get("BENCH_SCALE", "1")
ROUNDS = 5
MASTER = "local[*]"
CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
QUERY = """
SELECT date_format(l_shipdate, 'yyyy-MM-dd') AS ds, l_returnflag, l_linestatus, count(*) AS items,
       sum(l_quantity) AS quantity, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM {lineitem}
GROUP BY date_format(l_shipdate, 'yyyy-MM-dd'), l_returnflag, l_linestatus
"""

WORKER = """
import json, resource, sys, time
from datetime import datetime, UTC
from pathlib import Path
from uuid import uuid4
import airflow_dynamic_tables.operators.dynamic_table_refresh
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.settings import Settings
from airflow_dynamic_tables.services.workspace import open_workspace

home = Path(sys.argv[1])
definitions = load_definitions(home / "tables.yaml")
table = definitions.tables[TableIdentifier("lake", "bench", "days")]
started = time.perf_counter()
with open_workspace(Settings(f"sqlite:///{home}/state.db", f"file://{home}/warehouse")) as workspace:
    request = RefreshRequest(table, definitions.sources, datetime.now(UTC), str(uuid4()), "bench")
    run(workspace, request, lambda plan: SparkSubmitRunner(table.spark, sys.argv[2]).run(plan, {}))
    seconds = time.perf_counter() - started
    steps = dict(workspace.ledger.get_refresh(request.token).seconds)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "megabytes": peak, "steps": steps}))
"""

BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.parquet(sys.argv[1]).createOrReplaceTempView("lineitem")
spark.sql("INSERT OVERWRITE DIRECTORY '" + sys.argv[2] + "' USING parquet " + sys.argv[3])
spark.stop()
"""


def main() -> None:
    """Make the data, measure both sides in turn, print."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        data = home / "raw"
        subprocess.run(
            [
                str(Path(sys.executable).with_name("tpchgen-cli")),
                "parquet",
                "-s",
                SCALE,
                "--tables=lineitem",
                f"--output-dir={data}",
            ],
            check=True,
            capture_output=True,
        )
        (home / "lineitem").mkdir()
        (data / "lineitem.parquet").rename(home / "lineitem" / "part-0.parquet")
        (home / "tables.yaml").write_text(_definitions())
        (home / "bare.py").write_text(BARE)
        reports: list[dict[str, float]] = []
        measured = interleave(ROUNDS, ours=lambda: _ours(home, reports), rival=lambda: _rival(home))
    compare(f"refresh of lineitem SF{SCALE} by day", measured["ours"], measured["rival"], "bare spark-submit", 1.05, slack=2)
    check("peak memory of the worker process", [report["megabytes"] for report in reports], "MB", 300)


def _ours(home: Path, reports: list[dict[str, float]]) -> float:
    environ = {**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "DYNAMIC_TABLES_CACHE": ""}
    command = [sys.executable, "-c", WORKER, str(home), MASTER]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    print(f"    steps of ours: {report['steps']}")
    reports.append(report)
    return float(report["seconds"])


def _rival(home: Path) -> float:
    """Seconds of the bare job, from starting spark-submit to its end."""
    conf = [text for key, value in CONF.items() for text in ("--conf", f"{key}={value}")]
    binary = str(Path(sys.executable).with_name("spark-submit"))
    arguments = [str(home / "bare.py"), str(home / "lineitem"), str(home / "bare"), QUERY.format(lineitem="lineitem")]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    started = time.perf_counter()
    subprocess.run([binary, "--master", MASTER, *conf, *arguments], env=environ, check=True, capture_output=True)
    return time.perf_counter() - started


def _definitions() -> str:
    query = QUERY.format(lineitem="raw.lineitem").strip().replace("\n", "\n      ")
    return f"""defaults: {{catalog: lake, database: bench}}
sources:
  - {{name: raw.lineitem, format: parquet, path: lineitem}}
dynamic_tables:
  - name: days
    freshness: 1 day
    spark: {{conf: {json.dumps(CONF)}}}
    query: |
      {query}
"""


if __name__ == "__main__":
    main()
