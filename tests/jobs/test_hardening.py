"""The job and what is odd: names, types, settings of the user's, damaged sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.jobs.messages import message
from tests.support.jobs import refresh
from tests.support.spark_version import SPARK_VERSION, since

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def read(result: RefreshResult) -> pa.Table:
    return pa.concat_tables([pq.read_table(local(file.path), partitioning=None) for file in result.files])


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Settings a user may have made for other jobs; gone after the test."""
    changed: list[str] = []

    def change(key: str, value: str) -> None:
        spark.conf.set(key, value)
        changed.append(key)

    yield change
    for key in changed:
        spark.conf.unset(key)


@pytest.mark.sampled
@pytest.mark.parametrize("folder", ["ds=a{b}", "ds=[1]", "ds=*", "ds=a?b", "ds=a b", "ds=100%", "ds=Grüße"])
def test_names_of_source_files_are_no_patterns(spark: SparkSession, plan: Plan, tmp_path: Path, folder: str) -> None:
    file = tmp_path / "raw" / folder / "x y#%41.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), file)
    source = SourceBinding("raw.o", "o", "parquet", "v1", (f"file://{file}",), str(tmp_path / "raw"), None, ("ds",))
    # Spark reads a percent sign of a Hive folder as the beginning of an escape; 100% has none to begin.
    assert read(refresh(spark, plan("SELECT ds, n FROM o", source))).to_pylist() == [{"ds": folder[3:], "n": 1}]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    "names",
    [
        ("jan[1].x", "feb.x", "mar.x"),
        ("{x}/a.x", "{x}/b.x", "{x}/c.x"),
        ("v=b}/a.x", "v=${x}/a.x", "v=c/a.x"),
        ("a?.x", "ab.x", "*.x", "a\\\\b.x", "{a,b}.x", "[!a].x"),
    ],
)
def test_every_source_file_is_read_once(
    spark: SparkSession, plan: Plan, tmp_path: Path, kind: str, names: tuple[str, ...]
) -> None:
    for number, name in enumerate(names):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), file) if kind == "parquet" else file.write_text(f"{number}\n")
    files = tuple(f"file://{tmp_path}/{name}" for name in names)
    result = refresh(spark, plan("SELECT n FROM o", SourceBinding("raw.o", "o", kind, "v1", files, schema="n BIGINT")))
    assert sorted(row["n"] for row in read(result).to_pylist()) == list(range(len(names)))


def test_a_partitioned_source_may_lie_anywhere(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    base = tmp_path / "{a}[b]*"
    for day in ("1}", "[2]", "3"):
        (base / f"ds={day}").mkdir(parents=True)
        (base / f"ds={day}" / "x.csv").write_text("1\n")
    files = tuple(f"file://{base}/ds={day}/x.csv" for day in ("1}", "[2]", "3"))
    source = SourceBinding("raw.o", "o", "csv", "v1", files, f"file://{base}", "n BIGINT", ("ds",))
    rows = read(refresh(spark, plan("SELECT ds, n FROM o", source))).to_pylist()
    assert sorted(row["ds"] for row in rows) == ["1}", "3", "[2]"]


def test_a_source_file_that_spark_does_not_count_is_refused(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    for name in ("a.csv", "_b.csv"):
        (tmp_path / name).write_text("1\n")
    files = (f"file://{tmp_path}/a.csv", f"file://{tmp_path}/_b.csv")
    with pytest.raises(ValueError, match=r"Spark would read 1 files of source raw\.o, which has 2"):
        refresh(spark, plan("SELECT n FROM o", SourceBinding("raw.o", "o", "csv", "v1", files, schema="n BIGINT")))


def test_a_stage_may_lie_anywhere(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    result = refresh(spark, plan("SELECT 1 AS n", stage=f"file://{tmp_path}/{{a}}[b]*/stage"))
    assert read(result).to_pylist() == [{"n": 1}]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["a b", "a.b", "ä", "1st", "a`b", "a,b;{}()=", "select"])
def test_names_of_columns_may_hold_anything(spark: SparkSession, plan: Plan, name: str) -> None:
    quoted = name.replace("`", "``")
    planned = plan(f"SELECT 'x' AS `{quoted}`, 1 AS n", partition_keys=(name,), partitions=PartitionSet.of([{name: "x"}]))
    result = refresh(spark, planned)
    assert result.partitions == ({name: "x"},)
    assert read(result).column_names == [name, "n"]


def test_columns_named_like_the_folders_are_kept(spark: SparkSession, plan: Plan) -> None:
    planned = plan("SELECT 'd' AS ds, 'mine' AS _partition_0, 'too' AS _PARTITION_1", partition_keys=("ds",))
    assert read(refresh(spark, planned)).to_pylist() == [{"ds": "d", "_partition_0": "mine", "_PARTITION_1": "too"}]


def test_an_empty_text_is_a_partition_value(spark: SparkSession, plan: Plan) -> None:
    result = refresh(spark, plan("SELECT '' AS ds, 1 AS n", partition_keys=("ds",)))
    assert (result.partitions, result.rows) == (({"ds": ""},), 1)


def test_texts_that_spark_takes_for_nulls_are_partitions_of_their_own(spark: SparkSession, plan: Plan) -> None:
    values = ["", "=", "==", "__HIVE_DEFAULT_PARTITION__"]
    rows = " UNION ALL ".join(f"SELECT '{value}' AS ds, {number} AS n" for number, value in enumerate(values))
    result = refresh(spark, plan(rows, partition_keys=("ds",)))
    assert [spec["ds"] for spec in result.partitions] == values
    assert len(result.files) == 4
    assert sorted(read(result).to_pylist(), key=lambda row: row["n"]) == [{"ds": value, "n": n} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [("5", "int", "5"), ("-5L", "bigint", "-5"), ("true", "boolean", "true"), ("DATE'2024-02-29'", "date", "2024-02-29")],
)
def test_partition_keys_of_other_types_are_named_as_text(
    spark: SparkSession, plan: Plan, value: str, kind: str, text: str
) -> None:
    query = f"SELECT {value} AS k, 1 AS n UNION ALL SELECT null, 2"
    result = refresh(spark, plan(query, partition_keys=("k",), partitions=PartitionSet.of([{"k": text}])))
    assert (result.partitions, result.rows, result.columns[0].type) == (({"k": text},), 1, kind)


@pytest.mark.parametrize("value", ["1.5D", "cast(1 AS decimal(9,2))", "TIMESTAMP'2024-01-01 00:00:00'", "X'00'", "array(1)"])
def test_partition_keys_without_one_text_are_refused(spark: SparkSession, plan: Plan, value: str) -> None:
    planned = plan(f"SELECT {value} AS k, 1 AS n", partition_keys=("k",))
    with pytest.raises(ValueError, match=r"partition key 'k' has type .*; cast it to string, int or date in the query"):
        refresh(spark, planned)
    assert not local(planned.data_location).exists()


@since(4, 0)
def test_text_with_a_collation_becomes_plain_text(spark: SparkSession, plan: Plan) -> None:
    result = refresh(spark, plan("SELECT 'a' COLLATE UNICODE_CI AS c, array('b' COLLATE UTF8_LCASE) AS l"))
    assert [column.type for column in result.columns] == ["string", "array<string>"]


@pytest.mark.parametrize("value", ["parse_json('{}')", pytest.param("TIME'10:00:00'", marks=since(4, 1)), "make_interval(1)"])
@since(4, 0)
def test_types_the_table_cannot_hold_are_refused_before_anything_is_written(spark: SparkSession, plan: Plan, value: str) -> None:
    planned = plan(f"SELECT named_struct('inner', {value}) AS outer")
    with pytest.raises(ValueError, match=r"column 'outer' has type .*, which a table cannot hold"):
        refresh(spark, planned)
    assert not local(planned.stage).exists()


def test_old_times_are_written_as_they_are(spark: SparkSession, plan: Plan, setting: Callable[[str, str], None]) -> None:
    setting("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    setting("spark.sql.parquet.outputTimestampType", "INT96")
    result = refresh(spark, plan("SELECT DATE'1500-01-01' AS d, TIMESTAMP_NTZ'1500-01-01 00:00:00' AS t"))
    (row,) = read(result).to_pylist()
    assert (row["d"].isoformat(), row["t"].isoformat()) == ("1500-01-01", "1500-01-01T00:00:00")


def test_settings_of_the_user_do_not_change_what_is_stored(
    spark: SparkSession, plan: Plan, setting: Callable[[str, str], None], tmp_path: Path
) -> None:
    setting("spark.sql.sources.partitionColumnTypeInference.enabled", "true")
    setting("spark.sql.sources.partitionOverwriteMode", "dynamic")
    setting("spark.sql.parquet.writeLegacyFormat", "true")
    setting("spark.sql.session.timeZone", "America/Lima")
    (tmp_path / "raw" / "ds=01").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "raw" / "ds=01" / "x.parquet")
    files = (f"file://{tmp_path}/raw/ds=01/x.parquet",)
    source = SourceBinding("raw.o", "o", "parquet", "v1", files, str(tmp_path / "raw"), None, ("ds",))
    query = "SELECT ds, cast(n AS decimal(9,2)) AS m, array(n) AS l, date_format(TIMESTAMP_SECONDS(0), 'HH') AS h FROM o"
    first = refresh(spark, plan(query, source, partition_keys=("ds",), timezone="Asia/Tokyo"))
    again = refresh(spark, plan(query, source, partition_keys=("ds",), timezone="Asia/Tokyo"))
    assert len(first.files) == len(again.files) == 1
    assert (again.rows, again.partitions) == (1, ({"ds": "01"},))
    stored = read(again)
    assert stored.to_pylist() == [{"ds": "01", "m": 1, "l": [1], "h": "09"}]
    assert pq.read_metadata(local(again.files[0].path)).schema.column(1).physical_type == "INT32"


def test_a_large_partition_is_several_files_and_a_small_one_is_one(
    spark: SparkSession, plan: Plan, setting: Callable[[str, str], None]
) -> None:
    setting("spark.sql.adaptive.advisoryPartitionSizeInBytes", "200KB")
    query = "SELECT if(id < 200000, 'large', concat('small', id % 20)) AS ds, uuid() AS u FROM range(0, 201000, 1, 4)"
    result = refresh(spark, plan(query, partition_keys=("ds",)))
    in_folder = [file.path.split("/")[-2].removeprefix("_partition_0=") for file in result.files]
    assert in_folder.count("large") > 1
    assert sorted(name for name in in_folder if name != "large") == sorted(f"small{n}" for n in range(20))
    assert result.rows == 201_000


def test_a_small_table_is_one_file(spark: SparkSession, plan: Plan) -> None:
    assert len(refresh(spark, plan("SELECT id FROM range(0, 1000, 1, 8)")).files) == 1


def test_a_source_file_that_vanished_is_an_error(
    spark: SparkSession, plan: Plan, setting: Callable[[str, str], None], tmp_path: Path
) -> None:
    setting("spark.sql.files.ignoreMissingFiles", "true")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    files = (f"file://{tmp_path}/a.parquet", f"file://{tmp_path}/gone.parquet")
    source = SourceBinding("raw.o", "o", "parquet", "v1", files, schema="n BIGINT")
    with pytest.raises(Exception, match=r"gone\.parquet") as caught:
        refresh(spark, plan("SELECT * FROM o", source))
    assert "gone.parquet" in message(caught.value)


def test_a_damaged_source_file_is_named(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_text("this is not Parquet at all")
    source = SourceBinding("raw.o", "o", "parquet", "v1", (f"file://{tmp_path}/bad.parquet",), schema="n BIGINT")
    with pytest.raises(Exception, match=r"bad\.parquet") as caught:
        refresh(spark, plan("SELECT * FROM o", source))
    told = message(caught.value)
    assert told.startswith("[FAILED_READ_FILE" if SPARK_VERSION >= (4,) else "file:")
    assert told.endswith("is not a Parquet file. Expected magic number at tail, but found [32, 97, 108, 108]")


def test_a_source_with_neither_files_nor_schema_is_named(spark: SparkSession, plan: Plan) -> None:
    with pytest.raises(ValueError, match=r"source raw\.o has neither files nor a schema"):
        refresh(spark, plan("SELECT * FROM o", SourceBinding("raw.o", "o", "json", "v0")))
