"""``spark.sql.caseSensitive: true``, and columns whose names differ in the case of letters alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding, SourcePart
from tests.jobs.conftest import Plan
from tests.support.jobs import refresh

SENSITIVE = "spark.sql.caseSensitive"


@pytest.fixture
def days(tmp_path: Path) -> Any:
    """A folder by ``ds`` whose files have a column ``DS``, read by a schema, or by that of the files."""
    for ds in ("01", "02"):
        (tmp_path / f"ds={ds}").mkdir()
        pq.write_table(pa.table({"Id": [int(ds)], "DS": ["02"]}), tmp_path / f"ds={ds}" / "a.parquet")
    files = tuple(f"file://{tmp_path}/ds={ds}/a.parquet" for ds in ("01", "02"))

    def source(schema: str | None) -> SourceBinding:
        root = f"file://{tmp_path}"
        return SourceBinding("lake.raw.f", "f", "parquet", "v", files, base_path=root, schema=schema, partition_keys=("ds",))

    return source


@pytest.fixture
def sensitive(spark: SparkSession, plan: Plan) -> Any:
    spark.conf.set(SENSITIVE, "true")
    yield lambda query, source, **more: plan(query, source, settings={SENSITIVE: "true"}, **more)
    spark.conf.unset(SENSITIVE)


def rows(spark: SparkSession, planned: RefreshPlan) -> list[dict[str, Any]]:
    result = refresh(spark, planned)
    tables = [pq.read_table(file.path.removeprefix("file://")) for file in result.files]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["Id"])


@pytest.mark.parametrize("schema", ["Id BIGINT, DS STRING", None])
def test_they_are_two_columns(spark: SparkSession, sensitive: Any, days: Any, schema: str | None) -> None:
    planned = sensitive("SELECT ds, DS AS other, Id FROM f", days(schema), partition_keys=("ds",), keys_in_files=True)
    assert rows(spark, planned) == [{"ds": ds, "other": "02", "Id": int(ds)} for ds in ("01", "02")]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT ds, DS, Id FROM f", "more than one column named 'DS'"),
        ("SELECT DS, Id FROM f", "does not return partition key 'ds'"),
    ],
)
def test_no_table_has_both_and_none_is_taken_for_the_other(
    spark: SparkSession, sensitive: Any, days: Any, query: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        refresh(spark, sensitive(query, days("Id BIGINT, DS STRING"), partition_keys=("ds",)))


@pytest.mark.parametrize("kind", ["parquet", "orc", "part"])
def test_a_column_that_the_files_spell_otherwise_is_not_read_as_null(
    spark: SparkSession, sensitive: Any, tmp_path: Path, kind: str
) -> None:
    write = orc.write_table if kind == "orc" else pq.write_table
    for number, name in enumerate(("id", "Id")):
        write(pa.table({name: pa.array([number], pa.int32())}), f"{tmp_path}/{number}")
    files = tuple(f"file://{tmp_path}/{number}" for number in range(2))
    read = SourceBinding("lake.raw.f", "f", kind.replace("part", "parquet"), "v", files, schema="id INT")
    source = replace(read, files=(), parts=(SourcePart(files),)) if kind == "part" else read
    with pytest.raises(ValueError, match=r"files of lake\.raw\.f have a column 'Id', which is 'id' in its schema"):
        refresh(spark, sensitive("SELECT id FROM f", source))
