"""Delta tables of others as sources: one version of them, as their log tells it, or the reason why that cannot be read."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.formats.registry import added_since, bind, count_rows
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.readers import frame_of
from tests.support.delta_tables import add, commit_file, make_table, require, rewrite, write_file
from tests.support.source_states import difference

ORDERS = TableIdentifier("lake", "raw", "orders")
LIBRARY = {"spark.sql.extensions": "org.acme.Other,io.delta.sql.DeltaSparkSessionExtension"}


def source(path: Path | str) -> Source:
    return Source(ORDERS, "delta", str(path))


def bound(path: Path | str) -> SourceBinding:
    return bind(source(path), (), "orders")


def state(path: Path) -> SourceState:
    found = bound(path).state
    assert found is not None
    return found


def orders(path: Path, *rows: tuple[int, str | None], **how: Any) -> None:
    """Write rows as another engine does."""
    data = pa.table({"id": pa.array([row[0] for row in rows], pa.int64()), "ds": pa.array([row[1] for row in rows], pa.string())})
    write_deltalake(str(path), data, partition_by=["ds"], **how)


def seen(spark: SparkSession, binding: SourceBinding) -> list[tuple[Any, ...]]:
    """The rows that our job reads."""
    return sorted((tuple(row) for row in frame_of(spark, binding, JvmDriver(spark)).collect()), key=repr)


def told(path: Path, version: int | None = None) -> list[tuple[Any, ...]]:
    """The rows that delta-rs reads, which knows the log."""
    table = DeltaTable(str(path), version=version)
    return sorted((tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()), key=repr)


@pytest.mark.spark
def test_our_job_reads_what_delta_rs_reads_whatever_the_values_of_partitions_are(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "name": ["plain", "a b", "x/y%=é", None, "", "007", "1.0", "ü{*}"],  # the first column is a partition key
            "id": pa.array(range(8), pa.int64()),
            "day": [date(2024, 1, 1)] * 4 + [None] * 4,
            "nested": [[{"a": 1, "b": None}]] * 7 + [None],
            "bytes": [b"\x00\xff"] * 8,
            "n": pa.array([7] * 8, pa.int16()),
            "flag": [True, False] * 4,
            "amount": [Decimal("1.50")] * 8,
        }
    )
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["day", "name", "n", "flag", "amount"])
    frame = frame_of(spark, bound(tmp_path / "t"), JvmDriver(spark))
    assert frame.columns == rows.column_names
    found = [row.asDict(True) for row in frame.collect()]
    wanted = [{**row, "name": row["name"] or None} for row in rows.to_pylist()]  # Delta's protocol: an empty text is null
    assert sorted(found, key=lambda row: row["id"]) == wanted


@pytest.mark.spark
def test_the_log_says_of_which_partition_a_file_is_and_never_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_file(root / "ds=b" / "1.parquet", pa.table({"id": [1]}))
    write_file(root / "any" / "2.parquet", pa.table({"id": [2], "ds": ["in the file"]}))
    write_file(tmp_path / "elsewhere" / "ds=c" / "3.parquet", pa.table({"id": [3]}))
    write_file(root / "ds=d" / "4.parquet", pa.table({"id": [4], "ds": ["in the file"]}))
    files = [
        add(root, "ds=b/1.parquet", {"ds": "a"}),
        add(root, "any/2.parquet", {"ds": None}),
        add(root, f"file://{tmp_path}/elsewhere/ds=c/3.parquet", {"ds": "c"}),
        add(root, "ds=d/4.parquet", {"ds": "d"}),
    ]
    make_table(root, pa.schema([("ds", pa.string()), ("id", pa.int64())]), ["ds"], files)
    assert seen(spark, bound(root)) == [("a", 1), ("c", 3), ("d", 4), (None, 2)]
    assert count_rows(source(root), (), {"ds": "a"}, 9) == 1


@pytest.mark.spark
def test_a_time_that_is_a_partition_key_is_the_moment_that_the_log_says(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime(2024, 3, 31, 1, 30, 0, 5, tzinfo=UTC)
    rows = pa.table({"id": [1], "at": pa.array([moment], pa.timestamp("us", "UTC"))})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["at"])
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = frame_of(spark, bound(tmp_path / "t"), JvmDriver(spark))
        assert frame.selectExpr("unix_micros(at)").collect()[0][0] == int(moment.timestamp()) * 1_000_000 + 5
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.spark
def test_a_plan_reads_the_version_that_it_was_bound_to(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"))
    before = bound(root)
    orders(root, (3, "b"), mode="overwrite", predicate="ds = 'b'")
    assert (before.version, bound(root).version) == ("0", "1")
    assert seen(spark, before) == told(root, 0) == [(1, "a"), (2, "b")]
    assert seen(spark, bound(root)) == told(root) == [(1, "a"), (3, "b")]


@pytest.mark.spark
def test_a_table_without_rows_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("ds", pa.string())]), ["ds"], [])
    frame = frame_of(spark, bound(tmp_path / "t"), JvmDriver(spark))
    assert (frame.columns, frame.count()) == (["id", "ds"], 0)


def test_only_the_partition_that_was_overwritten_looks_changed(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"), (3, None))
    before = state(root)
    DeltaTable(str(root)).create_checkpoint()
    assert difference(before, state(root)) is None
    orders(root, (2, "b"), mode="overwrite", predicate="ds = 'b'")
    moved = difference(before, state(root))
    assert moved is not None
    assert moved.partitions == frozenset({"ds=b"})


def test_another_table_in_the_same_folder_is_another_one(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"))
    before = state(root)
    shutil.rmtree(root)
    orders(root, (1, "a"))
    moved = difference(before, state(root))
    assert moved is not None
    assert (moved.partitions, moved.why) == (None, "its identity is another one")


def test_a_column_that_came_is_told(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"))
    before = state(root)
    write_deltalake(str(root), pa.table({"id": [2], "ds": ["a"], "n": [1]}), mode="append", schema_mode="merge")
    moved = difference(before, state(root))
    assert moved is not None
    assert moved.why == "its schema is another one"


def deleted_rows(action: dict[str, Any]) -> None:
    """What Spark's DELETE leaves with deletion vectors."""
    require(["deletionVectors"])(action)
    if "add" in action:
        action["add"]["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
            "offset": 1,
            "sizeInBytes": 36,
            "cardinality": 1,
        }


def renamed_column(action: dict[str, Any]) -> None:
    """What Spark's RENAME COLUMN leaves."""
    require(["columnMapping"], **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"})(action)
    if "metaData" in action:
        for number, physical in enumerate(("id", "ds"), start=1):
            metadata = f'{{"delta.columnMapping.id":{number},"delta.columnMapping.physicalName":"{physical}"}}'
            text = action["metaData"]["schemaString"]
            action["metaData"]["schemaString"] = text.replace('"metadata":{}', f'"metadata":{metadata}', 1)


NOT_BY_FILES = {
    "deletion vectors": (deleted_rows, "holds deletion vectors, or may do so"),
    "column mapping": (renamed_column, r"has columns that are called otherwise in its files \(column mapping\)"),
    "wider types": (require(["typeWidening"]), "needs a reader that knows typeWidening"),
}


@pytest.mark.parametrize("kind", NOT_BY_FILES)
def test_rows_that_files_alone_do_not_tell_are_refused_or_read_by_deltas_own_library(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "a"))
    change, why = NOT_BY_FILES[kind]
    rewrite(root, 0, change)
    with pytest.raises(UnsupportedError, match=rf"Delta table lake.raw.orders {why}; to read it, add Delta's library for Spark"):
        bound(root)
    with pytest.raises(CatalogUnavailableError, match=rf"The rows of source lake.raw.orders cannot be counted: it {why}"):
        count_rows(source(root), (), {}, 1)
    binding = bind(source(root), (), "orders", LIBRARY)
    assert (binding.table, binding.version, binding.files, binding.parts) == (str(root), "0", (), ())
    assert binding.state is not None
    assert binding.state.partitions == {"": "0"}


def test_a_table_that_a_catalog_manages_is_refused(tmp_path: Path) -> None:
    """Its latest entries may be known to the catalog alone, so its folder does not tell its rows."""
    root = tmp_path / "t"
    write_deltalake(root, pa.table({"n": [1]}))
    rewrite(root, 0, require(["catalogManaged", "inCommitTimestamp"], **{"delta.enableInCommitTimestamps": "true"}))
    rewrite(root, 0, lambda action: action.get("protocol", {}).update(readerFeatures=["catalogManaged"]))
    with pytest.raises(UnsupportedError, match=r"is managed by a catalog \(feature catalogManaged\).*; read a copy"):
        bound(root)


@pytest.mark.parametrize(
    "features", [["deletionVectors", "timestampNtz", "columnMapping"], ["v2Checkpoint", "vacuumProtocolCheck"]]
)
def test_features_that_change_no_rows_are_fine(features: list[str], tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"))
    rewrite(root, 0, require(features))
    assert len(bound(root).parts) == 1


def test_a_protocol_from_the_future_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"))
    rewrite(root, 0, lambda action: action.get("protocol", {}).update(minReaderVersion=9))
    with pytest.raises(CatalogUnavailableError, match=r"The log of Delta table .* cannot be read.*minimum reader version 9"):
        bound(root)


def test_what_is_no_delta_table_is_told(tmp_path: Path) -> None:
    write_file(tmp_path / "files" / "1.parquet", pa.table({"id": [1]}))
    for path in (tmp_path / "files", tmp_path / "nothing"):
        with pytest.raises(TableNotFoundError, match=f"Source lake.raw.orders: there is no Delta table in {path}"):
            bound(path)
    with pytest.raises(ConfigurationError, match="its location is unknown"):
        bind(Source(ORDERS, "delta"), (), "orders")


@pytest.mark.parametrize("sign", "%#?[^")
def test_a_folder_that_delta_rs_takes_for_another_is_refused(sign: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="delta-rs does not find folders with"):
        bound(tmp_path / f"a{sign}b")


def test_a_log_that_is_garbage_or_out_of_reach_is_no_proof_of_anything(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"))
    orders(root, (2, "a"), mode="append")
    commit_file(root, 1).write_text('{"add":{"pa')
    with pytest.raises(CatalogUnavailableError, match=f"The log of Delta table {root} cannot be read"):
        bound(root)
    commit_file(root, 0).unlink()
    with pytest.raises(CatalogUnavailableError, match=f"The log of Delta table {root} cannot be read"):
        bound(root)


def test_rows_are_counted_by_the_log(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "a"), (3, "b"))
    assert [count_rows(source(root), (), spec, 9) for spec in ({}, {"ds": "a"}, {"ds": "c"})] == [3, 2, 0]
    with pytest.raises(ConfigurationError, match=r"Source lake\.raw\.orders has no partition key hh; it has: ds"):
        count_rows(source(root), (), {"hh": "1"}, 9)


def test_a_compaction_is_no_change(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"))
    orders(root, (3, "a"), mode="append")
    before = state(root)
    DeltaTable(str(root)).optimize.compact()
    compacted = state(root)
    assert compacted.partitions != before.partitions
    assert difference(before, compacted) is None
    orders(root, (4, "a"), mode="append")
    DeltaTable(str(root)).optimize.compact()
    assert difference(before, state(root)) is not None, "rows came in between"
    DeltaTable(str(root)).restore(int(before.version))
    assert difference(compacted, state(root)) is not None, "a restoration is a change, and which one is not looked at"


@pytest.mark.parametrize("lost", ["rows", "partition"])
def test_a_rewrite_that_loses_rows_is_a_change_whatever_it_says(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"), (3, "b"))
    before = state(root)
    (whole,) = [file for file in DeltaTable(str(root)).file_uris() if "ds=b" in file]
    name = f"ds=b/{Path(whole).name}"
    removed = {"path": name, "partitionValues": {"ds": "b"}, "size": 1, "deletionTimestamp": 0, "dataChange": False}
    actions: list[dict[str, Any]] = [{"remove": removed}]
    if lost == "rows":
        pq.write_table(pa.table({"id": [2]}), root / "ds=b" / "one.parquet")
        size = (root / "ds=b" / "one.parquet").stat().st_size
        said = {"path": "ds=b/one.parquet", "partitionValues": {"ds": "b"}, "size": size, "modificationTime": 0}
        actions.append({"add": {**said, "dataChange": False, "stats": json.dumps({"numRecords": 1})}})
    commit_file(root, 1).write_text("".join(f"{json.dumps(action)}\n" for action in [{"commitInfo": {}}, *actions]))
    assert difference(before, state(root)) is not None


def heard(root: Path, since: SourceState | None) -> Increment:
    return added_since(source(root), (), "orders", since)


def files_of(binding: SourceBinding | None) -> int:
    return 0 if binding is None else sum(len(part.files) for part in binding.parts)


def test_a_stream_hears_what_was_added(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"))
    first = heard(root, None).binding
    assert first is not None
    assert files_of(first) == 2
    assert heard(root, first.state).binding is None
    orders(root, (3, "a"), mode="append")
    orders(root, (4, "c"), mode="append")
    second = heard(root, first.state).binding
    assert second is not None
    assert files_of(second) == 2
    DeltaTable(str(root)).optimize.compact()
    quiet = heard(root, second.state)
    assert (quiet.binding, quiet.ended) == (None, "")


def test_a_stream_ends_when_rows_that_it_read_are_gone(tmp_path: Path) -> None:
    root = tmp_path / "t"
    orders(root, (1, "a"), (2, "b"))
    first = heard(root, None).binding
    assert first is not None
    orders(root, (3, "b"), mode="overwrite", predicate="ds = 'b'")
    assert heard(root, first.state).ended == "version 1 replaced or removed rows of it"
    DeltaTable(str(root)).create_checkpoint()
    commit_file(root, 1).unlink()
    assert "its log does not reach back so far any more" in heard(root, first.state).ended
    shutil.rmtree(root)
    orders(root, (1, "a"))
    assert heard(root, first.state).ended == "it was dropped and recreated"
