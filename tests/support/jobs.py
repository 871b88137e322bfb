"""The job in this process, and plans for it."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.jobs import batch
from airflow_dynamic_tables.jobs.main import JvmDriver

# package com.example;
# public class Triple implements org.apache.spark.sql.api.java.UDF1<Integer, Long> {
#     public Long call(Integer x) { return x == null ? null : 3L * x; }
# }
_TRIPLE = (
    "yv66vgAAAD0AJQoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWBQAAAAAAAAADCgAKAAsHAAwMAA0ADgEAEW"
    "phdmEvbGFuZy9JbnRlZ2VyAQAIaW50VmFsdWUBAAMoKUkKABAAEQcAEgwAEwAUAQAOamF2YS9sYW5nL0xvbmcBAAd2YWx1ZU9mAQATKEopTGph"
    "dmEvbGFuZy9Mb25nOwoAFgAXBwAYDAAZABoBABJjb20vZXhhbXBsZS9UcmlwbGUBAARjYWxsAQAlKExqYXZhL2xhbmcvSW50ZWdlcjspTGphdm"
    "EvbGFuZy9Mb25nOwcAHAEAIm9yZy9hcGFjaGUvc3Bhcmsvc3FsL2FwaS9qYXZhL1VERjEBAARDb2RlAQANU3RhY2tNYXBUYWJsZQEAJihMamF2"
    "YS9sYW5nL09iamVjdDspTGphdmEvbGFuZy9PYmplY3Q7AQAKRXhjZXB0aW9ucwcAIgEAE2phdmEvbGFuZy9FeGNlcHRpb24BAAlTaWduYXR1cm"
    "UBAFtMamF2YS9sYW5nL09iamVjdDtMb3JnL2FwYWNoZS9zcGFyay9zcWwvYXBpL2phdmEvVURGMTxMamF2YS9sYW5nL0ludGVnZXI7TGphdmEv"
    "bGFuZy9Mb25nOz47ACEAFgACAAEAGwAAAAMAAQAFAAYAAQAdAAAAEQABAAEAAAAFKrcAAbEAAAAAAAEAGQAaAAEAHQAAAC4ABAACAAAAFSvHAA"
    "cBpwAPFAAHK7YACYVpuAAPsAAAAAEAHgAAAAcAAghLBwAQEEEAGQAfAAIAHQAAABUAAgACAAAACSorwAAKtgAVsAAAAAAAIAAAAAQAAQAhAAEA"
    "IwAAAAIAJA=="
)


def refresh(spark: SparkSession, plan: RefreshPlan) -> RefreshResult:
    return batch.refresh(spark, plan, JvmDriver(spark))


def make_plan(folder: Path, query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
    """A plan that writes into a stage below a folder.

    :param fields: what is otherwise than in the plainest one.
    """
    values = {
        "token": "t1",
        "identifier": "lake.sales.t",
        "schedule_time": datetime(2024, 3, 1, tzinfo=UTC),
        "action": "FULL",
        "reason": "a test",
        "statement": query,
        "query": query,
        "stage": f"file://{folder}/stage/t1",
        "file_format": "parquet",
        "keys_in_files": True,
        "sources": sources,
    }
    return RefreshPlan(**{**values, **fields})


def jar_of_triple(folder: Path, factor: int = 3) -> str:
    """Write a jar with ``com.example.Triple``, a function of Spark's own interface; its URI.

    :param factor: what it multiplies by.
    """
    path = folder / f"triple_{factor}.jar"
    long = b"\x05"  # the tag of such a constant in a class
    code = b64decode(_TRIPLE).replace(long + (3).to_bytes(8, "big"), long + factor.to_bytes(8, "big"))
    with ZipFile(path, "w") as archive:
        archive.writestr("com/example/Triple.class", code)
    return f"file://{path}"
