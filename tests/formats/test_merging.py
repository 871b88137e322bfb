"""Files of Spark are made one without a change: Spark reads the same rows, columns and types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.merging import merge, shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """
SELECT id, CAST(id AS int) AS i, IF(id = 3, double('NaN'), -0.0D) AS x, CAST(id AS float) AS f, id % 2 = 0 AS even,
  CAST(id AS decimal(9,2)) AS d9, CAST(-id AS decimal(18,2)) AS d18, CAST(id AS decimal(38,2)) AS d38,
  DATE'0001-01-01' AS day, TIMESTAMP'1500-01-01 00:00:00' AS at, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' AS local,
  IF(id = 5, NULL, 'ä') AS s, CAST('ab' AS binary) AS raw,
  IF(id = 7, NULL, array(named_struct('a', id, 'b', CAST(NULL AS string)), NULL)) AS many,
  map('k', array(1.5D, NULL), 'n', NULL) AS by_name, named_struct('n', named_struct('x', CAST(NULL AS string))) AS deep
FROM RANGE(60)
"""


def test_spark_reads_the_same(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.sql(QUERY).repartition(6).write.parquet(f"{tmp_path}/small")
    files = sorted(map(str, (tmp_path / "small").glob("part-*.parquet")))
    assert len(files) == 6
    (kind,) = {shape(f"file://{file}") for file in files}
    assert not kind.has_field_ids
    merged = merge([f"file://{file}" for file in files], f"file://{tmp_path}/merged/one.parquet")
    assert shape(merged.path) == kind
    one = f"{tmp_path}/merged/one.parquet"
    before = spark.read.parquet(f"{tmp_path}/small")
    after = spark.read.parquet(one)
    assert after.schema == before.schema
    assert sorted(map(repr, after.collect())) == sorted(map(repr, before.collect()))
    assert sorted(map(repr, pl.read_parquet(one).rows())) == sorted(
        repr(row) for file in files for row in pl.read_parquet(file).rows()
    )
    (size,) = (file.stat().st_size for file in (tmp_path / "merged").iterdir())
    assert merged.bytes == size


def test_many_rows_are_written_in_groups_that_are_not_small(tmp_path: Path) -> None:
    """Files of one row each become one row group, whatever they say beside the rows."""
    table = pa.table({"x": [1]})
    sources = []
    for number in range(50):
        with pq.ParquetWriter(tmp_path / f"{number}.parquet", table.schema, compression="zstd") as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({b"said": b"by the writer"})
        sources.append(f"file://{tmp_path}/{number}.parquet")
    merged = merge(sources, f"file://{tmp_path}/merged.parquet")
    footer = pq.read_metadata(merged.path.removeprefix("file://"))
    assert (footer.num_rows, footer.num_row_groups, footer.row_group(0).column(0).compression) == (50, 1, "ZSTD")
    assert footer.metadata[b"said"] == b"by the writer"


def test_what_would_change_is_refused(tmp_path: Path) -> None:
    """Times of 96 bits, which Arrow reads as others than it writes."""
    times = pa.table({"at": pa.array([0], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    old = f"file://{tmp_path}/old.parquet"
    with pytest.raises(StageRejectedError, match="has not the rows and columns"):
        merge([old, old], f"file://{tmp_path}/merged.parquet")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StageRejectedError, match="cannot be read"):
        shape(f"file://{tmp_path}/damaged.parquet")
    with pytest.raises(StageRejectedError, match="cannot be"):
        merge([f"file://{tmp_path}/damaged.parquet"] * 2, f"file://{tmp_path}/merged.parquet")
