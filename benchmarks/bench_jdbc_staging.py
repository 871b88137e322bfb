"""A million rows into a table of PostgreSQL: our stage, counted and known to be there once, against Spark's bare JDBC append.

Needs PostgreSQL and its JDBC driver. Both sides run in one Spark, on the same rows, into tables of the same server;
``BENCH_ROWS`` and ``BENCH_ROUNDS`` change how many. CPU of Java and of the server is measured, too, for a machine that is shared.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import compare, interleave

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.sinks import Sink
from tests.support.jobs import make_plan, refresh
from tests.support.postgres import DRIVER, PostgresServer, postgres_binaries, running_postgres

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))

QUERY = """
SELECT id, concat('customer ', id % 1000) AS customer, date_add(DATE'2024-01-01', CAST(id % 30 AS int)) AS day,
  CAST(id * 1.5 AS decimal(18, 2)) AS amount, timestamp_seconds(1700000000 + id) AS at
FROM range(0, {rows}, 1, 4)
"""

_CLASS = "org.postgresql.Driver"


def main() -> None:
    """Measure, and print both sides."""
    binaries = postgres_binaries()
    if binaries is None or not DRIVER.exists():
        sys.exit("needs PostgreSQL and its JDBC driver: apt-get install -y postgresql libpostgresql-jdbc-java")
    with running_postgres(binaries) as server, tempfile.TemporaryDirectory() as folder:
        database = server.create_database("bench")
        url = f"jdbc:{database.replace('postgres@', '')}"
        spark = SparkSession.builder.master("local[2]").config("spark.jars", str(DRIVER)).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        sink = Sink(url, _CLASS, '"public"."staged"', "postgres")
        query = QUERY.format(rows=ROWS)
        plan = make_plan(Path(folder), query, sink=sink, partition_keys=("day",))
        try:
            _ours(spark, plan)  # Java is warm for both
            _bare(spark, url, query, "bare", {})
            cpu = CpuOf(spark, server)
            tuning = {"batchsize": "10000", "reWriteBatchedInserts": "true"}
            measured = interleave(
                ROUNDS,
                ours=lambda: cpu.counted("ours", lambda: _ours(spark, plan)),
                bare=lambda: cpu.counted("bare", lambda: _bare(spark, url, query, "bare", {})),
                tuned=lambda: cpu.counted("tuned", lambda: _bare(spark, url, query, "tuned", tuning)),
            )
        finally:
            spark.stop()
        with psycopg.connect(database) as connection:
            counted = {
                name: connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ("staged", "bare", "tuned")
            }
        if set(counted.values()) != {(ROWS,)}:
            sys.exit(f"not all rows are there: {counted}")
    compare(f"{ROWS} rows staged in PostgreSQL", measured["ours"], measured["bare"], "Spark's bare JDBC append", 1.15)
    compare("the same", measured["ours"], measured["tuned"], "that with the driver told to rewrite batches")
    compare("CPU of it", cpu.seconds["ours"], cpu.seconds["bare"], "Spark's bare JDBC append", 1.15)
    compare("CPU of it", cpu.seconds["ours"], cpu.seconds["tuned"], "that with the driver told to rewrite batches")


class CpuOf:
    """Seconds of CPU that Java and the server take for the sides."""

    def __init__(self, spark: SparkSession, server: PostgresServer) -> None:
        postmaster = int((server.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        gateway: Any = spark.sparkContext._gateway
        self._roots = [psutil.Process(gateway.proc.pid), psutil.Process(postmaster)]
        self.seconds: dict[str, list[float]] = {"ours": [], "bare": [], "tuned": []}

    def counted(self, side: str, work: Callable[[], float]) -> float:
        """Do some work, and count its CPU for a side."""
        before = self._now()
        took = work()
        self.seconds[side].append(self._now() - before)
        return took

    def _now(self) -> float:
        """Of all that run, and of those that ended and were waited for."""
        total = 0.0
        for process in [*self._roots, *(child for root in self._roots for child in root.children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


def _ours(spark: SparkSession, plan: RefreshPlan) -> float:
    started = time.perf_counter()
    result = refresh(spark, plan)
    print(f"    steps of ours: {dict(result.seconds)}")
    return time.perf_counter() - started


def _bare(spark: SparkSession, url: str, query: str, table: str, more: dict[str, str]) -> float:
    """Seconds of an append to a table that is not there yet."""
    with psycopg.connect(f"{url.removeprefix('jdbc:')}?user=postgres", autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    started = time.perf_counter()
    spark.sql(query).write.jdbc(url, table, "append", {"driver": _CLASS, "user": "postgres", **more})
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
