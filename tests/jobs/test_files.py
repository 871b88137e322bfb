"""Listings of a stage by the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.jobs.files import list_files
from tests.support.processes import as_nobody

pytestmark = pytest.mark.spark

NAMES = ("ds=a b/part-0.parquet", "ds=%2F#?/part-1.parquet", "ds=日本/hh=03/part-2.parquet", "part-3.parquet", "empty.parquet")
HIDDEN = ("_SUCCESS", ".part-3.parquet.crc", "_temporary/0/part-4.parquet", "ds=a b/part-5.parquet._COPYING_")


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    for size, name in enumerate((*HIDDEN, *NAMES[:-1])):
        file = tmp_path / "stage" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
    (tmp_path / "stage" / NAMES[-1]).touch()
    return tmp_path / "stage"


def test_local_files_are_found_as_hadoop_finds_them(spark: SparkSession, stage: Path) -> None:
    found = list_files(spark, f"file://{stage}")
    assert found == sorted((f"file://{stage}/{name}", (stage / name).stat().st_size) for name in NAMES)
    without_scheme = list_files(spark, str(stage))  # which only Hadoop knows
    assert found == [(f"file://{path}", size) for path, size in without_scheme]
    assert list_files(spark, f"file://{stage}/nothing") == list_files(spark, f"{stage}/nothing") == []


def test_a_folder_that_cannot_be_read_is_an_error(spark: SparkSession, stage: Path) -> None:
    (stage / "ds=a b").chmod(0)
    assert "Permission denied" in str(as_nobody(lambda: list_files(spark, f"file://{stage}")))
