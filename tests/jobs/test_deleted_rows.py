"""Rows of sources that another engine deleted by their places are not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding, SourcePart
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]


def test_deleted_rows_are_left_out_whatever_spark_reads_of_a_file(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    files = []
    for number in range(2):
        file = tmp_path / f"a b={number}.parquet"
        ids = pa.array(range(number * 1000, number * 1000 + 1000), pa.int64())
        # A column that has the name of what Spark knows of files.
        pq.write_table(pa.table({"id": ids, "_metadata": ids, "name": ["x"] * 1000}), file, row_group_size=100)
        files.append(f"file://{file}")
    parts = (SourcePart((files[0],)), SourcePart((files[1],), deleted=(0, 99, 100, 555, 999)))
    source = SourceBinding("lake.s.t", "t_0", "parquet", "v", schema="id BIGINT, _metadata BIGINT, name STRING", parts=parts)
    every = refresh(spark, plan("SELECT count(*) AS n, sum(id) AS total, max(_metadata) AS top FROM t_0", source))
    assert rows(every) == [{"n": 1995, "total": sum(range(2000)) - 1000 - 1099 - 1100 - 1555 - 1999, "top": 1998}]
    few = refresh(spark, plan("SELECT id FROM t_0 WHERE id BETWEEN 1550 AND 1556", source, stage=f"file://{tmp_path}/few"))
    assert sorted(row["id"] for row in rows(few)) == [1550, 1551, 1552, 1553, 1554, 1556]


def rows(result: object) -> list[dict[str, int]]:
    tables = [pq.read_table(file.path.removeprefix("file://")) for file in getattr(result, "files", ())]
    return [row for table in tables for row in table.to_pylist()]
