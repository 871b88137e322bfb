"""TPC-H lineitem by day on a cluster of two workers: refreshes in full and of one day, beside Iceberg's own writer.

Ours is ``dynamic-tables refresh`` by spark-submit. The rivals are jobs with Iceberg's library for Spark (``INSERT
OVERWRITE``, ``writeTo().overwritePartitions()``), and a run of Spark Declarative Pipelines, which refresh in full only, into
an Iceberg table. All run on the same Spark 4.1, with the same memory, on the same standalone cluster, in turn. Pipelines need a
Spark Connect server; its start is not in their seconds.
``BENCH_SCALE`` is the scale factor, ``BENCH_ROUNDS`` how often. CPU is that of all processes. Memory is resident: ``client`` is
the Python process of the command, ``driver`` and ``executor`` are the largest Java process of each kind.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import compare

from tests.support.connect_server import running_connect_server
from tests.support.downloads import jars, spark_home
from tests.support.processes import descendants, wait_until
from tests.support.spark_cluster import SparkCluster, running_spark_cluster

SCALE = os.environ.get("BENCH_SCALE", "3")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
DAY = "1995-06-17"
BIN = Path(sys.executable).parent
MB = 1024 * 1024

RIVAL = f"""
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
source, way = sys.argv[1:]
rows = spark.read.parquet(source)
rows = rows.where("l_shipdate = DATE'{DAY}'") if way.endswith("-day") else rows
rows.createOrReplaceTempView("raw")
if way == "create":
    spark.sql("CREATE TABLE ice.bench.lineitem USING iceberg PARTITIONED BY (l_shipdate) AS SELECT * FROM raw LIMIT 0")
elif way.startswith("insert"):
    spark.sql("INSERT OVERWRITE ice.bench.lineitem SELECT * FROM raw")
elif way.startswith("write"):
    rows.writeTo("ice.bench.lineitem").overwritePartitions()
spark.stop()
"""


@dataclass
class Measured:
    """What one command took; CPU is that of all processes in seconds, memory in megabytes, shuffled data in bytes.

    ``tasks`` is the CPU of Spark's tasks, without the start and the compilation of code, which depend most on other work.
    """

    seconds: float
    cpu: float
    tasks: float
    shuffled: int
    files: int
    bytes: int
    memory: Mapping[str, int]
    steps: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        memory = ", ".join(f"{kind} {size} MB" for kind, size in self.memory.items())
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.steps.items())
        moved = f"shuffled {self.shuffled / MB:.0f} MB, wrote {self.files} files of {self.bytes / MB:.0f} MB"
        return f"{self.seconds:.1f} s, CPU {self.cpu:.1f} s (tasks {self.tasks:.1f} s), {moved}; {memory}; {steps}"


@dataclass
class Bench:
    """A cluster, the data, and the tables of both sides."""

    home: Path
    cluster: SparkCluster

    @property
    def conf(self) -> dict[str, str]:
        """Settings of Spark for all sides."""
        return {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (self.home / "events").as_uri(),
        }

    def ours(self, *options: str) -> Measured:
        """A refresh by the command line."""
        (self.home / "tables.yaml").write_text(_definitions(self.conf))
        home = self.home / "ours"
        environ = {"AIRFLOW_HOME": str(home), "DYNAMIC_TABLES_DATABASE_URL": f"sqlite:///{home}/state.db"}
        asked = ["--definitions", str(self.home / "tables.yaml"), "--master", self.cluster.url, "-o", "json", *options]
        return self._run([str(BIN / "dynamic-tables"), "refresh", "lineitem", *asked], environ, home)

    def rival(self, way: str) -> Measured:
        """A job with Iceberg's own writer."""
        (self.home / "rival.py").write_text(RIVAL)
        conf = {
            **self._with_iceberg("rival"),
            "spark.jars": ",".join(map(str, jars("iceberg-spark-4.1"))),
            "spark.sql.sources.partitionOverwriteMode": "dynamic" if way.endswith("-day") else "static",
        }
        program = [str(self.home / "rival.py"), str(self.home / "lineitem"), way]
        command = [_binary("spark-submit"), "--master", self.cluster.url, *_options(conf), *program]
        return self._run(command, {}, self.home / "rival")

    def pipelines(self) -> Measured:
        """A run of a pipeline with one materialized view."""
        project = self.home / "pipeline"
        (project / "transformations").mkdir(parents=True, exist_ok=True)
        (self.home / "pipelines" / "bench").mkdir(parents=True, exist_ok=True)  # the database
        spec = {
            "name": "bench",
            "catalog": "ice",
            "database": "bench",
            "storage": f"{project.as_uri()}/storage",
            "libraries": [{"glob": {"include": "transformations/**"}}],
        }
        (project / "spark-pipeline.yml").write_text(json.dumps(spec))
        view = "CREATE MATERIALIZED VIEW lineitem USING iceberg PARTITIONED BY (l_shipdate)"
        source = f"parquet.`{self.home / 'lineitem'}`"
        (project / "transformations" / "lineitem.sql").write_text(f"{view} AS SELECT * FROM {source};\n")
        run = [_binary("spark-pipelines"), "run", "--spec", str(project / "spark-pipeline.yml"), "--remote"]
        conf = self._with_iceberg("pipelines")
        self._clear_events()
        with running_connect_server(None, jars("iceberg-spark-4.1"), self.cluster.url, conf) as server:
            measured = self._run([*run, server.url], {}, self.home / "pipelines", server.process.pid)
        wait_until(lambda: not self.cluster.executors(), "the end of the server's executors")  # not to be counted in the next run
        return measured

    def _with_iceberg(self, lake: str) -> dict[str, str]:
        catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": (self.home / lake).as_uri()}
        return {
            **self.conf,
            "spark.sql.iceberg.advisory-partition-size": str(64 * MB),  # its default needs more than the 1 GB of an executor
            "spark.sql.shuffle.partitions": "200",  # Spark's default; the server of tests has fewer
            **{f"spark.sql.catalog.ice{key}": value for key, value in catalog.items()},
        }

    def _clear_events(self) -> None:
        shutil.rmtree(self.home / "events", ignore_errors=True)
        (self.home / "events").mkdir()

    def _run(self, command: Sequence[str], environ: Mapping[str, str], table: Path, server: int | None = None) -> Measured:
        """Run a command; ``server`` is the process of the driver if the command does not start it."""
        if server is None:
            self._clear_events()
        before = _files(table)
        started = time.perf_counter()
        output, errors = self.home / "output", self.home / "errors"
        with output.open("wb") as out, errors.open("wb") as log:
            process = subprocess.Popen(command, env={**os.environ, **environ}, cwd=self.home, stdout=out, stderr=log)
            memory, cpu = _watched(process, self.cluster, server)
        seconds = time.perf_counter() - started
        if process.returncode:
            raise SystemExit(f"{command}\n{output.read_text()}{errors.read_text()[-6000:]}")
        added = {path: size for path, size in _files(table).items() if path not in before}
        shuffled, tasks = _of_tasks(self.home / "events")
        return Measured(seconds, cpu, tasks, shuffled, len(added), sum(added.values()), memory, _steps(output))


def _watched(process: subprocess.Popen[bytes], cluster: SparkCluster, server: int | None) -> tuple[dict[str, int], float]:
    """Wait for the end of a process; return the peaks of memory in megabytes, and the seconds of CPU of all that it started.

    :param server: a process that serves it, whose children count, too.
    """
    peaks = {"client": 0, "driver": 0, "executor": 0}
    used: dict[int, float] = {}
    commands = [psutil.Process(pid) for pid in (process.pid, server) if pid is not None]
    ended = Event()

    def look() -> None:
        while not ended.wait(0.3):
            executors = cluster.executors()
            started = (child for command in commands for child in descendants(command.pid))
            for one in (*executors, *commands, *started):
                with suppress(psutil.Error):
                    # What Java starts looks for a moment as Java does, and has the name of a thread.
                    kind = "executor" if one in executors else "driver" if Path(one.exe()).name == "java" else "client"
                    peaks[kind] = max(peaks[kind], one.memory_info().rss // MB)
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system

    watch = Thread(target=look)
    watch.start()
    try:
        process.wait()
    finally:
        ended.set()
        watch.join()
    return peaks, sum(used.values())


def _files(table: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in table.rglob("*.parquet")}


def _of_tasks(events: Path) -> tuple[int, float]:
    """Return the bytes that the tasks of an application shuffled, and their seconds of CPU."""
    shuffled = nanoseconds = 0
    for file in (path for path in events.rglob("*") if path.is_file()):
        for metrics in (event["Task Metrics"] for event in _task_ends(file) if "Task Metrics" in event):
            shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            nanoseconds += metrics["Executor CPU Time"]
    return shuffled, nanoseconds / 1e9


def _task_ends(file: Path) -> Iterator[dict[str, Any]]:
    text = (
        subprocess.run(["zstd", "-dcq", str(file)], capture_output=True, text=True, check=True).stdout
        if file.suffix == ".zstd"
        else file.read_text()
    )
    yield from (json.loads(line) for line in text.splitlines() if '"Event":"SparkListenerTaskEnd"' in line)


def _steps(output: Path) -> dict[str, float]:
    """Seconds of the steps of our refreshes, which print a record; none of others."""
    text = output.read_text()
    return dict(json.loads(text)["seconds"]) if text.startswith("{") else {}


def _options(conf: Mapping[str, str]) -> list[str]:
    return [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]


def _binary(name: str) -> str:
    return str(spark_home("4.1") / "bin" / name)


def _definitions(conf: Mapping[str, str]) -> str:
    table = {
        "name": "lineitem",
        "freshness": "1 day",
        "partitioned_by": ["l_shipdate"],
        "skip_unchanged": False,
        "spark": {"conf": conf},
        "query": "SELECT * FROM raw.lineitem",
    }
    source = {"name": "raw.lineitem", "format": "parquet", "path": "lineitem"}
    return json.dumps({"defaults": {"catalog": "lake", "database": "bench"}, "sources": [source], "dynamic_tables": [table]})


def main() -> None:
    """Make the data, measure all sides in turn, print."""
    os.environ |= {"SPARK_HOME": str(spark_home("4.1")), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder, running_spark_cluster() as cluster:
        home = Path(folder)
        lineitem = home / "lineitem"
        made = ["parquet", "-s", SCALE, "--tables=lineitem", f"--output-dir={lineitem}"]
        subprocess.run([str(BIN / "tpchgen-cli"), *made], check=True, capture_output=True)
        bench = Bench(home, cluster)
        bench.rival("create")
        sides: dict[str, dict[str, Callable[[], Measured]]] = {
            "full": {
                "ours": lambda: bench.ours("--full-refresh"),
                "INSERT OVERWRITE": lambda: bench.rival("insert"),
                "overwritePartitions": lambda: bench.rival("write"),
                "spark-pipelines": bench.pipelines,
            },
            "one day": {
                "ours": lambda: bench.ours("--partition", f"l_shipdate={DAY}"),
                "INSERT OVERWRITE": lambda: bench.rival("insert-day"),
                "overwritePartitions": lambda: bench.rival("write-day"),
            },
        }
        for what, found in sides.items():
            measured: dict[str, list[Measured]] = {name: [] for name in found}
            for _ in range(ROUNDS):
                for name, measure in found.items():
                    measured[name].append(measure())
                    print(f"  {what}, {name}: {measured[name][-1]}", flush=True)
            for unit in ("seconds", "cpu", "tasks"):
                figures = {name: [getattr(one, unit) for one in runs] for name, runs in measured.items()}
                for name in list(found)[1:]:
                    compare(f"{unit} of a refresh of lineitem SF{SCALE}, {what}", figures["ours"], figures[name], name, 1.1)
            print(f"  of ours outside of Spark: {statistics.median(_outside(one) for one in measured['ours']):.1f} s")


def _outside(one: Measured) -> float:
    return one.seconds - one.steps.get("spark", 0)


if __name__ == "__main__":
    main()
