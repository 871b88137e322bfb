"""Spark sessions of processes that know nothing of this package: what other engines do and see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

SMALL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""What makes a Spark of a test's own start fast, and listen to nobody."""

_PROGRAM = """
import json, sys

sys.path[:0] = json.loads(sys.argv[3])
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
answers = open(int(sys.argv[2]), "w")
for line in sys.stdin:
    try:
        found = {"rows": [row.asDict(True) for row in spark.sql(json.loads(line)).collect()]}
    except Exception as error:
        found = {"error": str(error)}
    found["foreign"] = [name for name in sys.modules if name.startswith("airflow")]
    print(json.dumps(found, default=str), file=answers, flush=True)
"""


@dataclass(frozen=True)
class PlainSpark:
    """A Spark of its own process: SQL goes in, rows come out."""

    questions: IO[str]
    answers: IO[str]
    log: IO[str]

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement; values that JSON does not know come as text."""
        print(json.dumps(statement), file=self.questions, flush=True)
        line = self.answers.readline()
        if not line:
            self.log.seek(0)
            raise AssertionError(f"Spark is gone:\\n{self.log.read()[-4000:]}")
        answer = json.loads(line)
        assert answer["foreign"] == []
        assert "error" not in answer, answer["error"]
        return list(answer["rows"])


@contextmanager
def running_plain_spark(uri: str, warehouse: str) -> Iterator[PlainSpark]:
    """Start one on a Hive metastore; it is gone afterwards."""
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.sql.warehouse.dir": warehouse,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
    }
    with running_session(settings) as opened:
        yield opened


@contextmanager
def running_session(settings: Mapping[str, str], home: Path | None = None) -> Iterator[PlainSpark]:
    """Start a Spark of its own process; it is gone afterwards.

    :param home: the ``SPARK_HOME`` of another version than the installed one, see :func:`tests.support.downloads.spark_home`.
    """
    settings = {
        **SMALL,
        "spark.driver.memory": "1g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        **settings,
    }
    imported = [str(home.parent), *map(str, (home / "python" / "lib").glob("py4j*.zip"))] if home is not None else []
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    if home is not None:
        environment["SPARK_HOME"] = str(home)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(settings), str(writing), json.dumps(imported)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            pass_fds=[writing],
        )
        os.close(writing)
        with open(reading) as answers:  # noqa: PTH123 - a descriptor is no path
            try:
                assert process.stdin is not None
                yield PlainSpark(process.stdin, answers, log)
            finally:
                process.stdin.close()
                process.wait()
