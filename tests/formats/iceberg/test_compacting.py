"""Compaction: the same rows in fewer files, whatever their types; what may mean something else is left alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from math import nan
from pathlib import Path
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import InOrder, TableTransaction
from airflow_dynamic_tables.formats.small_files import Compacted, Limits
from tests.support.benches.staging import NOON, REVENUE, Bench

MANY = 5
LIMITS = Limits(many=MANY)
ONE_DAY = PartitionSet.of([{"ds": "1"}])


@pytest.fixture
def bench(catalog: SqlCatalog) -> Bench:
    return Bench(catalog.stores()[0])


def scatter(
    bench: Bench, tables: dict[str, list[pa.Table]], columns: tuple[Column, ...] | None = None, **options: object
) -> None:
    """A refresh of these days that writes each table into a file of its own."""
    staged = bench.stage(str(uuid4()), *tables)
    stage = staged.begin()
    files = []
    for day, parts in tables.items():
        for number, part in enumerate(parts):
            name = f"data/_partition_0={day}/part-{number}.parquet"
            file = Path(stage.removeprefix("file://"), name)
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, file, **options)
            files.append(StagedFile(f"{stage}/{name}", file.stat().st_size))
    rows = sum(part.num_rows for parts in tables.values() for part in parts)
    touched = tuple({"ds": day} for day in tables)
    bench.commit(staged, RefreshResult(stage.rpartition("/")[2], "job", rows, tuple(files), columns or bench.columns, touched))


def numbers(day: str, *values: int) -> pa.Table:
    return pa.table({"ds": pa.array([day] * len(values), pa.string()), "n": pa.array(values, pa.int64())})


def many(day: str, files: int = MANY + 1, start: int = 0) -> list[pa.Table]:
    return [numbers(day, start + number, start + 100 + number) for number in range(files)]


def loaded(bench: Bench) -> Table:
    table = tables.load(bench.store, REVENUE)  # type: ignore[arg-type]  # it is an Iceberg store here
    assert table is not None
    return table


def data_files(bench: Bench) -> list[str]:
    return sorted(task.file.file_path.removeprefix("file://") for task in loaded(bench).scan().plan_files())


def seen(bench: Bench) -> list[str]:
    """All rows, read by Polars."""
    return sorted(repr(row) for file in data_files(bench) for row in pl.read_parquet(file).rows())


def compact(bench: Bench) -> Compacted | None:
    """Compact what is due, by one commit."""
    (due,) = bench.table.scattered(LIMITS)
    return bench.stage(f"compaction-{uuid4()}").compact(due, LIMITS, lambda: None)


def test_the_rows_are_the_same_whatever_their_types(bench: Bench) -> None:
    columns = (
        *(Column("ds", "string"), Column("x", "double"), Column("d", "decimal(9,2)"), Column("big", "decimal(38,0)")),
        *(Column("day", "date"), Column("at", "timestamp"), Column("local", "timestamp_ntz"), Column("raw", "binary")),
        *(Column("some", "array<struct<a:int,b:string>>"), Column("by_name", "map<string,array<double>>"), Column("f", "float")),
        *(Column("deep", "struct<a:struct<b:bigint>,c:boolean>"), Column("i", "int")),
    )
    types = pa.schema(
        {
            "ds": pa.string(),
            "x": pa.float64(),
            "d": pa.decimal128(9, 2),
            "big": pa.decimal128(38, 0),
            "day": pa.date32(),
            "at": pa.timestamp("us", "UTC"),
            "local": pa.timestamp("us"),
            "raw": pa.binary(),
            "some": pa.list_(pa.struct({"a": pa.int32(), "b": pa.string()})),
            "by_name": pa.map_(pa.string(), pa.list_(pa.float64())),
            "f": pa.float32(),
            "deep": pa.struct({"a": pa.struct({"b": pa.int64()}), "c": pa.bool_()}),
            "i": pa.int32(),
        }
    )
    row = {
        "ds": "1",
        "x": nan,
        "d": Decimal("-1.10"),
        "big": Decimal(10) ** 37,
        "day": date(1582, 10, 4),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - of no time zone
        "raw": b"\0\xff",
        "some": [{"a": 1, "b": None}, None],
        "by_name": [("k", [1.5, None]), ("n", None)],
        "f": -0.0,
        "deep": {"a": {"b": None}, "c": True},
        "i": -(2**31),
    }
    nothing = {**dict.fromkeys(row), "ds": "1"}
    empty: dict[str, object] = {**nothing, "some": [], "by_name": [], "deep": {"a": None, "c": None}, "x": -0.0, "raw": b""}
    parts = [pa.Table.from_pylist([row, nothing, {**empty, "i": number}], types) for number in range(MANY + 1)]
    scatter(bench, {"1": parts}, columns, store_schema=False, store_decimal_as_integer=True)
    before = seen(bench)
    sampled = bench.table.sample(100)
    layout = bench.table.layout()
    done = compact(bench)
    assert done is not None
    assert (done.files, done.made, len(data_files(bench))) == (MANY + 1, 1, 1)
    assert seen(bench) == before
    assert len(before) == 3 * (MANY + 1)
    assert sorted(map(repr, bench.table.sample(100))) == sorted(map(repr, sampled))
    assert bench.table.layout() == layout


def test_it_is_no_version(bench: Bench) -> None:
    scatter(bench, {"1": many("1"), "2": many("2", 2)})
    scatter(bench, {"2": many("2", 3)})
    versions = bench.table.versions()
    old = bench.table.sample(100, 1)
    before = seen(bench)
    assert compact(bench) == Compacted(MANY + 1, 1, sum(file.bytes for file in _files(bench, 1)[: MANY + 1]))
    assert (bench.table.versions(), bench.table.current()) == (versions, versions[-1])
    assert seen(bench) == before
    assert sorted(map(repr, bench.table.sample(100, 1))) == sorted(map(repr, old)), "earlier versions read their own files"
    snapshot = loaded(bench).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == str(len(before))
    assert bench.table.scattered(LIMITS) == []
    restored = bench.stage("back").restore(1, lambda: None)
    assert (restored.number, sorted(map(repr, bench.table.sample(100)))) == (3, sorted(map(repr, old)))
    bench.refresh({"1": [7]}, "1")
    assert bench.rows()["1"] == [7]
    assert bench.table.current() == bench.table.versions()[-1]
    assert bench.table.versions()[-1].number == 4


def _files(bench: Bench, number: int) -> list[StagedFile]:
    (version,) = (version for version in bench.table.versions() if version.number == number)
    tasks = loaded(bench).scan(snapshot_id=int(version.snapshot)).plan_files()
    return [StagedFile(t.file.file_path, t.file.file_size_in_bytes) for t in tasks if "_partition_0=1" in t.file.file_path]


class Deletes(InOrder["Deletes"], _FastAppendFiles):
    """A snapshot that says of its manifests that they list delete files."""

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        for manifest in manifests:
            manifest[3] = ManifestContent.DELETES
        return manifests


def test_delete_files_keep_a_table_from_being_compacted(bench: Bench) -> None:
    scatter(bench, {"1": many("1")})
    table = loaded(bench)
    changes = TableTransaction(table)
    Deletes(Operation.DELETE, changes, table.io).commit()
    changes.commit_transaction()
    assert bench.table.scattered(LIMITS) == []
    with pytest.raises(StageRejectedError, match="holds delete files"):
        bench.stage("compaction-1").compact(ONE_DAY, LIMITS, lambda: None)


def test_a_renamed_column_keeps_a_table_from_being_compacted(bench: Bench) -> None:
    scatter(bench, {"1": many("1")})
    with loaded(bench).update_schema() as update:
        update.rename_column("n", "m")
    assert bench.table.scattered(LIMITS) == []


def test_only_files_of_one_shape_become_one(bench: Bench) -> None:
    """Files from before a column was added, those of a writer of its own, and those that know columns by number stay apart."""
    scatter(bench, {"1": many("1", 4)})
    table = loaded(bench)
    wide = [part.append_column("more", pa.array(["!"] * part.num_rows)) for part in many("1", 3, 1000)]
    table.update_schema().add_column("more", loaded(bench).schema().find_type("ds")).commit()
    fields = enumerate(numbers("1").schema, 1)
    by_number = pa.schema([field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in fields])
    added = {**{f"wide-{i}": part for i, part in enumerate(wide)}, "by-number": numbers("1", 5000).cast(by_number)}
    paths = []
    for name, part in added.items():
        file = Path(table.location().removeprefix("file://"), "data", f"{name}.parquet")
        pq.write_table(part, file)
        paths.append(f"file://{file}")
    before = seen(bench)
    loaded(bench).add_files(paths[:3])
    with_wide = sorted(map(repr, bench.table.sample(100)))
    done = compact(bench)
    assert done is not None
    assert (done.files, done.made, len(data_files(bench))) == (7, 2, 2)
    assert sorted(map(repr, bench.table.sample(100))) == with_wide
    assert len(with_wide) == len(before) + 6


def test_large_partitions_are_done_bit_by_bit(bench: Bench) -> None:
    scatter(bench, {"1": many("1", 12), "2": many("2", 7)})
    size = max(file.bytes for file in _files(bench, 1))
    limits = Limits(many=MANY, small=2 * size, target=4 * size, most=6 * size, opening=1)
    assert bench.table.scattered(limits) == [PartitionSet.of([{"ds": "1"}]), PartitionSet.of([{"ds": "2"}])]
    before = seen(bench)
    commits = 0
    while due := bench.table.scattered(limits):
        commits += 1
        done = bench.stage(f"compaction-{commits}").compact(due[0], limits, lambda: None)
        assert done is not None
        assert done.bytes <= limits.most
    assert seen(bench) == before
    assert len(data_files(bench)) <= 2 * MANY


def test_a_table_without_versions_is_left_alone(bench: Bench) -> None:
    assert bench.table.scattered(LIMITS) == []
    bench.stage("first").begin()
    assert bench.table.scattered(LIMITS) == []
    assert bench.refresh({"1": [1]}, at=NOON).number == 1
