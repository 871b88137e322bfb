"""Two tables, the second of which reads the first: our refreshes against one run of Spark Declarative Pipelines.

Ours is what people type: two times ``dynamic-tables refresh``, each a process that plans, runs Spark and commits; cold with
spark-submit, warm on the server of ``dynamic-tables spark start``. The rival is ``spark-pipelines run`` of the same two queries,
in a new project each time, because its in-memory catalog refuses to make the tables a second time. All three have the same
master and memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from measure import compare, interleave

from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import start, stop

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
MASTER = "local[*]"
MEMORY = "1g"
CONF = {"spark.ui.enabled": "false", "spark.driver.memory": MEMORY}
QUERIES = {
    "per_k": "SELECT id % 1000 AS k, count(*) AS c, max(sha2(cast(id AS string), 512)) AS h FROM RANGE(6000000) "
    "GROUP BY id % 1000",
    "per_digit": "SELECT k % 10 AS d, sum(c) AS c, max(h) AS h FROM per_k GROUP BY k % 10",
}
BIN = Path(sys.executable).parent


def main() -> None:
    """Measure the three in turn, print."""
    with tempfile.TemporaryDirectory() as folder, _warm_server(Path(folder)) as server:
        home = Path(folder)
        cold, warm = home / "cold.yaml", home / "warm.yaml"
        cold.write_text(_definitions(CONF))
        warm.write_text(_definitions({}))  # a server has its memory already
        _ours(warm, environ=server)  # the first refresh of a server loads what all others find there
        measured = interleave(
            ROUNDS,
            cold=lambda: _ours(cold, "--master", MASTER),
            warm=lambda: _ours(warm, environ=server),
            pipelines=lambda: _pipelines(home),
        )
    compare("two cold refreshes", measured["cold"], measured["pipelines"], "spark-pipelines run")
    compare("two warm refreshes", measured["warm"], measured["pipelines"], "spark-pipelines run", 0.5)


@contextmanager
def _warm_server(home: Path) -> Iterator[dict[str, str]]:
    """A server while it is used; gives the environment by which a command finds it."""
    folder = ServerFolder.of(f"sqlite:///{home}/state.db")
    server, _ = start(folder, Options(MASTER, MEMORY))
    try:
        yield {"SPARK_REMOTE": f"{server.address}/;token={server.token}"}
    finally:
        stop(folder)


def _ours(definitions: Path, *options: str, environ: Mapping[str, str] = MappingProxyType({})) -> float:
    """Seconds of two commands, one after the other; every one makes a version."""
    home = definitions.parent
    environ = {**os.environ, "AIRFLOW_HOME": str(home), "DYNAMIC_TABLES_DATABASE_URL": f"sqlite:///{home}/state.db", **environ}
    asked = ["--full-refresh", "-o", "json", "--definitions", str(definitions)]
    started = time.perf_counter()
    for name in QUERIES:
        command = [str(BIN / "dynamic-tables"), "refresh", name, *asked, *options]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode or json.loads(done.stdout)["state"] != "SUCCEEDED":
            raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - started


def _pipelines(home: Path) -> float:
    """Seconds of one run of a new pipeline."""
    project = home / "pipeline"
    shutil.rmtree(project, ignore_errors=True)
    (project / "transformations").mkdir(parents=True)
    spec = {"name": "bench", "storage": project.as_uri() + "/storage", "libraries": [{"glob": {"include": "transformations/**"}}]}
    (project / "spark-pipeline.yml").write_text(json.dumps(spec))  # JSON is YAML, too
    for name, query in QUERIES.items():
        (project / "transformations" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {query};\n")
    conf = [text for key, value in CONF.items() for text in ("--conf", f"{key}={value}")]
    command = [str(BIN / "spark-pipelines"), "run", "--remote", MASTER, *conf]
    environ = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    started = time.perf_counter()
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    if not all(list((project / "spark-warehouse" / name).glob("*.parquet")) for name in QUERIES):
        raise SystemExit(f"spark-pipelines wrote nothing:\n{done.stdout}{done.stderr}")
    return seconds


def _definitions(conf: Mapping[str, str]) -> str:
    tables = [{"name": name, "freshness": "1 day", "spark": {"conf": conf}, "query": query} for name, query in QUERIES.items()]
    return json.dumps({"defaults": {"catalog": "lake", "database": "bench"}, "dynamic_tables": tables})


if __name__ == "__main__":
    main()
