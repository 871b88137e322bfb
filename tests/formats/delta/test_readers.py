"""Tables that were committed here, read by those who know nothing of us: before and after partitions were replaced."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.formats.registry import bind
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.readers import frame_of
from tests.support.benches.staging import Bench

BEFORE = [("a b", 1), ("a b", 2), ("x%/=é", 3)]
AFTER = [("a b", 4), ("x%/=é", 3)]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """A table of two versions: of the second one, a partition was replaced."""
    bench.refresh({"a b": [1, 2], "x%/=é": [3]})
    bench.refresh({"a b": [4]}, "a b")
    return bench


def place(bench: Bench) -> str:
    return (bench.table.folder() or "").removeprefix("file://")


def entries(bench: Bench) -> list[int]:
    """The versions of the log that ours are."""
    return [int(version.snapshot) for version in bench.table.versions()]


def rows_of(read: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["ds"], row["n"]) for row in read)


def test_delta_rs_reads_each_version(bench: Bench) -> None:
    read = [rows_of(DeltaTable(place(bench), version=entry).to_pyarrow_table().to_pylist()) for entry in entries(bench)]
    assert read == [BEFORE, AFTER]


def test_polars_reads_each_version(bench: Bench) -> None:
    polars = pytest.importorskip("polars")
    read = [rows_of(polars.read_delta(place(bench), version=entry).to_dicts()) for entry in entries(bench)]
    assert read == [BEFORE, AFTER]


def test_duckdb_reads_the_files_of_each_version(bench: Bench) -> None:
    """Its own reader of Delta tables is loaded from the internet; that of Parquet reads what the log names."""
    duckdb = pytest.importorskip("duckdb")
    seen = []
    for entry in entries(bench):
        snapshot = open_snapshot(f"file://{place(bench)}", entry)
        assert snapshot is not None
        paths = [file.uri.removeprefix("file://") for file in snapshot.files]
        seen.append(sorted(duckdb.read_parquet(paths).select("n").fetchall()))
    assert seen == [[(n,) for _, n in sorted(rows, key=lambda row: row[1])] for rows in (BEFORE, AFTER)]


@pytest.mark.spark
def test_plain_spark_reads_the_current_version_with_its_partitions(bench: Bench, spark: SparkSession) -> None:
    identifier = TableIdentifier("lake", "sales", "revenue")
    for wanted in (AFTER, [("a b", 5), ("x%/=é", 3)]):
        binding = bind(Source(identifier, "delta", place(bench)), (), "v")
        assert rows_of([row.asDict() for row in frame_of(spark, binding, JvmDriver(spark)).collect()]) == wanted
        bench.refresh({"a b": [5]}, "a b")
