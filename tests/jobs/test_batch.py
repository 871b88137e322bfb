"""The job on a real Spark: what it reads, what it writes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.types import TypeLimits
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.jobs.messages import message
from tests.support.jobs import refresh
from tests.support.spark_version import since

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]


def rows_of(result: RefreshResult) -> list[dict[str, Any]]:
    tables = [pq.read_table(file.path.removeprefix("file://"), partitioning=None) for file in result.files]
    return [row for table in tables for row in table.to_pylist()]


def test_the_result_says_what_is_in_the_stage(spark: SparkSession, plan: Plan) -> None:
    planned = plan("SELECT ds, n FROM VALUES ('1', 10), ('1', 11), ('2', 20) AS v(ds, n)", partition_keys=("ds",))
    result = refresh(spark, planned)
    assert (result.token, result.rows, result.partitions) == ("t1", 3, ({"ds": "1"}, {"ds": "2"}))
    assert [(column.name, column.type) for column in result.columns] == [("ds", "string"), ("n", "int")]
    assert sorted((row["ds"], row["n"]) for row in rows_of(result)) == [("1", 10), ("1", 11), ("2", 20)]
    assert len(result.files) == 2, "a small partition is one file"
    for file in result.files:
        assert file.path.startswith(f"{planned.data_location}/")
        assert Path(file.path.removeprefix("file://")).stat().st_size == file.bytes
    assert RefreshResult.from_json(Path(planned.result_location.removeprefix("file://")).read_text()) == result


def test_the_files_have_the_codec_of_the_settings(spark: SparkSession, plan: Plan) -> None:
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    try:
        result = refresh(spark, plan("SELECT 1 AS n"))
    finally:
        spark.conf.unset("spark.sql.parquet.compression.codec")
    (file,) = result.files
    assert pq.read_metadata(file.path.removeprefix("file://")).row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_in_plain_folders_the_partition_keys_are_in_the_names_only(spark: SparkSession, plan: Plan, kind: str) -> None:
    query = "SELECT day, n, h FROM VALUES (DATE'2024-01-01', 1, 'a b/c'), (DATE'2024-01-02', 2, '%') AS v(day, n, h)"
    result = refresh(spark, plan(query, partition_keys=("day", "h"), file_format=kind, keys_in_files=False))
    assert (result.rows, len(result.files)) == (2, 2)
    assert result.partitions == ({"day": "2024-01-01", "h": "a b/c"}, {"day": "2024-01-02", "h": "%"})
    assert [column.name for column in result.columns] == ["day", "n", "h"]
    read = {"parquet": lambda path: pq.read_table(path, partitioning=None), "orc": pa_orc.read_table}[kind]
    for file in result.files:
        assert "/data/day=2024-01-0" in file.path
        assert file.path.endswith(f".{kind}")
        assert read(Path(file.path.removeprefix("file://"))).column_names == ["n"]
    assert refresh(spark, plan("SELECT 1 AS a WHERE false", file_format=kind, keys_in_files=False)).rows == 0
    with pytest.raises(ValueError, match="null or empty"):
        refresh(spark, plan("SELECT '' AS ds, 1 AS n", partition_keys=("ds",), file_format=kind, keys_in_files=False))


def test_what_the_table_cannot_have_is_refused_before_a_row_is_computed(spark: SparkSession, plan: Plan) -> None:
    limits = TypeLimits({"timestamp_ntz": "cast it"}, ":")
    for column in ("TIMESTAMP_NTZ'2024-07-01 22:30:00'", "array(named_struct('a:b', 1))"):
        planned = plan(f"SELECT {column} AS odd, assert_true(false) IS NULL AS n", limits=limits)
        with pytest.raises(SchemaEvolutionError, match="Column 'odd' has"):
            refresh(spark, planned)


@since(4, 0)
def test_a_collation_that_is_dropped_is_said(spark: SparkSession, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    columns = (
        "'a' COLLATE UTF8_LCASE AS k",
        "map('x', array(named_struct('y', 'a' COLLATE UNICODE_CI))) AS deep",
        "'a' AS plain",
    )
    result = refresh(spark, plan(f"SELECT {', '.join(columns)}"))
    assert [column.type for column in result.columns] == ["string", "map<string,array<struct<y:string>>>", "string"]
    said = [line for line in capsys.readouterr().out.splitlines() if "which no table keeps" in line]
    assert [line.split(",")[0] for line in said] == [
        "Column 'k' has collation UTF8_LCASE",
        "Column 'deep' has collation UNICODE_CI",
    ]


def test_only_planned_partitions_are_written(spark: SparkSession, plan: Plan) -> None:
    query = "SELECT ds, h, 1 AS n FROM VALUES ('1', '00'), ('1', '01'), ('2', '00') AS v(ds, h)"
    result = refresh(
        spark,
        plan(query, partition_keys=("ds", "h"), partitions=PartitionSet.of([{"ds": "1", "h": "01"}, {"ds": "3", "h": "00"}])),
    )
    assert result.partitions == ({"ds": "1", "h": "01"},)
    assert result.rows == 1


def test_no_rows_are_a_result_too(spark: SparkSession, plan: Plan) -> None:
    result = refresh(spark, plan("SELECT 1 AS a WHERE false"))
    assert (result.rows, rows_of(result), [column.name for column in result.columns]) == (0, [], ["a"])


def test_a_stage_written_twice_holds_the_rows_once(spark: SparkSession, plan: Plan) -> None:
    refresh(spark, plan("SELECT 1 AS a"))
    assert rows_of(refresh(spark, plan("SELECT 2 AS a"))) == [{"a": 2}]


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"n": {row["n"]}}}\n' for row in table.to_pylist()))


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": write_parquet,
    "orc": pa_orc.write_table,
    "csv": pa_csv.write_csv,
    "json": write_json,
}


@pytest.mark.sampled
@pytest.mark.parametrize("schema", [None, "n BIGINT"], ids=["inferred", "declared"])
@pytest.mark.parametrize("kind", WRITERS)
def test_exactly_the_bound_files_are_read(spark: SparkSession, plan: Plan, tmp_path: Path, kind: str, schema: str | None) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        for part in (1, 2):
            folder = tmp_path / "raw" / f"ds={day}"
            folder.mkdir(parents=True, exist_ok=True)
            WRITERS[kind](pa.table({"n": [part]}), folder / f"{part}.{kind}")
    files = tuple(f"file://{folder}/1.{kind}" for folder in sorted((tmp_path / "raw").iterdir()))
    options = {"header": "true"} if kind == "csv" else {}
    source = SourceBinding("lake.raw.o", "o_0", kind, "v1", files, str(tmp_path / "raw"), schema, ("ds",), options)
    result = refresh(spark, plan("SELECT ds, cast(sum(n) AS int) AS n FROM o_0 GROUP BY ds", source, partition_keys=("ds",)))
    assert sorted((row["ds"], row["n"]) for row in rows_of(result)) == [("2024-01-01", 1), ("2024-01-02", 1)]


def test_a_source_without_files_is_empty_when_its_schema_is_known(spark: SparkSession, plan: Plan) -> None:
    source = SourceBinding("lake.raw.o", "o_0", "parquet", "v0", schema="n BIGINT", partition_keys=("ds",))
    result = refresh(spark, plan("SELECT ds, count(n) AS n FROM o_0 GROUP BY ds", source))
    assert result.rows == 0


def test_every_type_comes_back_from_the_table_as_it_was(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    table = IcebergTable(catalog.stores()[0], ObjectPath("sales", "t"))
    staged = table.stage("t1")
    query = """
        SELECT true AS flag, cast(1 AS tinyint) AS tiny, cast(2 AS smallint) AS small, 3 AS int, 4L AS long,
               cast(1.5 AS float) AS float, 2.5D AS double, cast(1.25 AS decimal(20,2)) AS money, 'ä' AS text, X'00FF' AS bytes,
               DATE'2024-02-29' AS day, TIMESTAMP'2024-02-29 12:00:00.123456' AS at, TIMESTAMP_NTZ'2024-02-29 12:00:00' AS local,
               array(1, null) AS list, map('k', 1.5D) AS pairs, named_struct('a b', 1, 'c', array(named_struct('d', 'x'))) AS deep
    """
    result = refresh(spark, plan(query, stage=staged.begin(), timezone="Europe/Berlin"))
    staged.commit(CommitRequest(result, datetime(2024, 3, 1, tzinfo=UTC)), lambda: None)
    (row,) = table.sample(1)
    numbers = {"flag": True, "tiny": 1, "small": 2, "int": 3, "long": 4, "float": 1.5, "double": 2.5, "money": Decimal("1.25")}
    times = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 11, 0, 0, 123456, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 12),  # noqa: DTZ001 - that is the type
    }
    nested = {"list": [1, None], "pairs": [("k", 1.5)], "deep": {"a b": 1, "c": [{"d": "x"}]}}
    assert row == numbers | {"text": "ä", "bytes": b"\x00\xff"} | times | nested
    content = table.read()
    source = SourceBinding("lake.sales.t", "t_0", content.format, content.snapshot, content.files, schema=content.schema)
    copied = refresh(spark, plan("SELECT * FROM t_0", source, stage=f"file://{tmp_path}/copy"))
    assert [column.type for column in copied.columns] == [column.type for column in result.columns]
    assert rows_of(copied) == rows_of(result)
    catalog.close()


def test_a_table_is_made_anew_with_other_types(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    table = IcebergTable(catalog.stores()[0], ObjectPath("sales", "t"))
    old = "SELECT 'x' AS ds, 1 AS n, named_struct('a', 1, 'b', 'y') AS deep, array(1) AS list, map('k', 1) AS pairs"
    new = "SELECT map('q', named_struct('a', 'y')) AS list, array(named_struct('b', 2)) AS deep, 'z' AS n, map(7, 'v') AS pairs"
    first = table.stage("t1")
    result = refresh(spark, plan(old, token="t1", stage=first.begin(), partition_keys=("ds",)))
    first.commit(CommitRequest(result, None, partition_keys=("ds",)), lambda: None)
    before = table.sample(1)

    layout = table.layout()
    assert layout is not None
    with pytest.raises(SchemaEvolutionError, match="--full-refresh"):
        refresh(spark, plan(new, layout=layout))
    second = table.stage("t2")
    anew = refresh(spark, plan(new, token="t2", stage=second.begin(), layout=layout, rebuild=layout.rebuild))
    second.commit(CommitRequest(anew, None, rebuild=layout.rebuild), lambda: None)
    assert table.sample(1) == [{"list": [("q", {"a": "y"})], "deep": [{"b": 2}], "n": "z", "pairs": [(7, "v")]}]
    content = table.read()
    source = SourceBinding("lake.sales.t", "t_0", content.format, content.snapshot, content.files, schema=content.schema)
    copied = refresh(spark, plan("SELECT * FROM t_0", source, stage=f"file://{tmp_path}/copy"))
    assert rows_of(copied) == rows_of(anew)
    assert [version.number for version in table.versions()] == [2], "its partition key is no column any more"

    third = table.stage("t3")
    again = refresh(spark, plan(old, token="t3", stage=third.begin(), layout=table.layout(), rebuild=layout.rebuild))
    third.commit(CommitRequest(again, None, rebuild=layout.rebuild), lambda: None)
    assert table.sample(1) == before
    assert table.sample(1, 2)[0]["deep"] == [{"b": 2}]
    catalog.close()


def test_times_that_python_lacks_are_committed_and_shown(spark: SparkSession, plan: Plan, tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    table = IcebergTable(catalog.stores()[0], ObjectPath("sales", "t"))
    staged = table.stage("t1")
    query = """
        SELECT 1 AS id, TIMESTAMP '9999-12-31 23:59:59' AS valid_to, DATE '+10000-01-01' AS far, DATE '-0044-03-15' AS ides,
               TIMESTAMP_NTZ '0000-12-30 00:00:00' AS old, array(named_struct('at', DATE '0000-12-30')) AS deep
        UNION ALL SELECT 2, TIMESTAMP '2024-01-01 00:00:00', DATE '2024-01-01', null, TIMESTAMP_NTZ '2024-01-01 00:00:00', null
    """
    result = refresh(spark, plan(query, stage=staged.begin(), timezone="America/New_York"))
    staged.commit(CommitRequest(result, datetime(2024, 3, 1, tzinfo=UTC)), lambda: None)
    first, second = sorted(table.sample(2), key=lambda row: row["id"])
    assert first["valid_to"] == "10000-01-01 04:59:59.000000Z"
    assert (first["far"], first["ides"]) == ("10000-01-01", "-0044-03-15")
    assert (first["old"], first["deep"]) == ("0000-12-30 00:00:00.000000", [{"at": "0000-12-30"}])
    assert (second["valid_to"], second["far"]) == (datetime(2024, 1, 1, 5, tzinfo=UTC), date(2024, 1, 1))
    read = table.load().filled
    assert read.scan(row_filter="far > '9998-01-01'").to_arrow().column("id").to_pylist() == [1]
    assert read.scan(row_filter="old < '0001-01-01T00:00:00'").to_arrow().column("id").to_pylist() == [1]
    content = table.read()
    source = SourceBinding("lake.sales.t", "t_0", content.format, content.snapshot, content.files, schema=content.schema)
    wanted = "SELECT id FROM t_0 WHERE far > DATE '9999-01-01' AND ides < DATE '0000-01-01' AND valid_to > '9999-12-31 23:00:00'"
    copied = refresh(spark, plan(wanted, source, stage=f"file://{tmp_path}/copy", timezone="America/New_York"))
    assert rows_of(copied) == [{"id": 1}]
    catalog.close()


@pytest.mark.sampled
@pytest.mark.parametrize("value", ["a b", "a/b", "a=b", "100%", "Grüße", "it's", '"x"', "#?&", "[1]", "a\\b", "x\ny"])
def test_odd_partition_values_are_kept(spark: SparkSession, plan: Plan, value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    query = f"SELECT '{quoted}' AS ds, 1 AS n UNION ALL SELECT 'other', 2"
    result = refresh(spark, plan(query, partition_keys=("ds",), partitions=PartitionSet.of([{"ds": value}])))
    assert result.partitions == ({"ds": value},)
    assert rows_of(result) == [{"ds": value, "n": 1}]


@pytest.mark.parametrize(
    ("query", "keys", "expected"),
    [
        ("SELECT null AS nothing", (), "column 'nothing' has type void"),
        ("SELECT INTERVAL '1' DAY AS wait", (), "column 'wait' has type interval day"),
        ("SELECT array(INTERVAL '1' MONTH) AS wait", (), "column 'wait' has type interval month"),
        ("SELECT 1 AS a, 2 AS A", (), "more than one column named 'A'"),
        ("SELECT 1 AS n", ("ds",), "does not return partition key 'ds'"),
        ("SELECT cast(null AS string) AS ds, 1 AS n", ("ds",), "partition key 'ds' is null in some rows"),
        ("SELECT missing AS ds", (), "[UNRESOLVED_COLUMN"),
        ("SELECT * FROM nowhere", (), "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELEC 1", (), "[PARSE_SYNTAX_ERROR]"),
        ("SELECT '1' AS ds, 1/(id - id) AS n FROM range(3)", ("ds",), "[DIVIDE_BY_ZERO]"),
        ("SELECT cast(raise_error('too bad') AS int) AS n", (), "too bad"),
    ],
)
def test_errors_are_one_message_without_a_java_stack(
    spark: SparkSession, plan: Plan, query: str, keys: tuple[str, ...], expected: str
) -> None:
    planned = plan(query, partition_keys=keys)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark raises
        refresh(spark, planned)
    told = message(caught.value)
    assert expected in told
    assert "\tat " not in told
    assert "Project [" not in told
    assert len(told.splitlines()) < 12
    assert not Path(planned.result_location.removeprefix("file://")).exists()
