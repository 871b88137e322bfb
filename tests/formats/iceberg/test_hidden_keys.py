"""Iceberg tables that are partitioned by what is computed of columns: what the commit believes, and what others read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column, Rebuild
from airflow_dynamic_tables.core.versions import Retention, Version
from airflow_dynamic_tables.exceptions import SchemaEvolutionError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.formats.small_files import Limits

COLUMNS = (Column("country", "string"), Column("ts", "timestamp"), Column("id", "bigint"), Column("name", "string"))
KEYS = ("country", "day(ts)", "bucket(4, id)")
SCHEMA = pa.schema(
    [("country", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("name", pa.string())],
)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = Limits(many=1, target=10**9)

Row = tuple[str | None, datetime | None, int | None, str | None]


@pytest.fixture
def table(catalog: SqlCatalog) -> IcebergTable:
    return IcebergTable(catalog.stores()[0], ObjectPath("sales", "t"))


def physical(catalog: SqlCatalog) -> Table:
    store = catalog.stores()[0]
    assert isinstance(store, IcebergStore)
    return store.tables.load_table(("sales", "t"))


def publish(
    table: IcebergTable,
    *files: Sequence[Row],
    keys: tuple[str, ...] = KEYS,
    partitions: PartitionSet = WHOLE_TABLE,
    rebuild: Rebuild = Rebuild.NOTHING,
    columns: tuple[Column, ...] = COLUMNS,
) -> Version:
    """A refresh whose job wrote these files."""
    staged = table.stage(str(uuid4()))
    stage = staged.begin()
    written = []
    for number, rows in enumerate(files):
        path = Path(stage.removeprefix("file://"), "data", f"part-{number}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        content = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        pq.write_table(content.rename_columns([column.name for column in columns]), path)
        written.append(StagedFile(f"file://{path}", path.stat().st_size))
    count = sum(map(len, files))
    result = RefreshResult(stage.rpartition("/")[2], "job", count, tuple(written), columns)
    request = CommitRequest(result, NEW_YEAR, partition_keys=keys, partitions=partitions, rebuild=rebuild)
    return staged.commit(request, lambda: None)


def row(day: int, number: int, country: str = "DE", name: str = "a") -> Row:
    return (country, NEW_YEAR + timedelta(days=day, hours=3), number, name)


def rows_of(table: IcebergTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(found.values()) for found in table.sample(1000))


def test_a_filter_reads_the_files_of_its_partitions_alone(
    table: IcebergTable, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    files = [[row(day, number)] for day in range(4) for number in range(3)]
    publish(table, *files)
    iceberg = physical(catalog)
    assert [(field.name, str(field.transform)) for field in iceberg.spec().fields] == [
        ("country", "identity"),
        ("ts_day", "day"),
        ("id_bucket_4", "bucket[4]"),
    ]
    assert len(list(iceberg.scan("ts >= '2026-01-03T00:00:00+00:00'").plan_files())) == 6
    assert len(list(iceberg.scan("ts < '2026-01-02T00:00:00+00:00' and id = 2").plan_files())) == 1
    assert iceberg.scan("id = 2").to_arrow().num_rows == 4
    wanted = pl.scan_iceberg(iceberg).filter(pl.col("ts") < NEW_YEAR + timedelta(days=1)).collect()
    assert sorted(wanted["id"].to_list()) == [0, 1, 2]
    assert len(rows_of(table)) == 12


def test_a_column_and_what_is_computed_of_it_are_keys_beside_each_other(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1)], [row(0, 2), row(0, 3)], [row(1, 4)], keys=("ts", "day(ts)"))
    assert [field.name for field in physical(catalog).spec().fields] == ["ts", "ts_day"]
    assert [found["ts"] for found in physical(catalog).scan("ts >= '2026-01-02T00:00:00+00:00'").to_arrow().to_pylist()] == [
        NEW_YEAR + timedelta(days=1, hours=3)
    ]
    assert len(catalog.list_partitions(ObjectPath("sales", "t"))) == 2


def test_times_before_1970_have_partitions_of_their_own(table: IcebergTable, catalog: SqlCatalog) -> None:
    old = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    first = datetime(1970, 1, 1, tzinfo=UTC)
    publish(table, [("DE", old, 1, "a")], [("DE", first, 1, "a")], keys=("hour(ts)",))
    values = [task.file.partition[0] for task in physical(catalog).scan().plan_files()]
    assert sorted(values) == [-1, 0]


@pytest.mark.parametrize(
    ("keys", "rows", "why"),
    [
        (("day(ts)",), [row(0, 1), row(1, 1)], r"does not hold one partition of day\(ts\): .*more than one partition value"),
        (("bucket(4, id)",), [row(0, 1), row(0, 2), row(0, 3)], r"of bucket\(4, id\): rows of it are of \d and of \d"),
        (("truncate(2, name)",), [row(0, 1, name="abc"), row(0, 1, name="acb")], r"of truncate\(2, name\): "),
        (("day(ts)",), [row(0, 1), ("DE", None, 1, "a")], r"of day\(ts\): rows of it are of .* and of "),
        (("bucket(4, id)",), [row(0, 1), ("DE", None, None, "a")], r"of bucket\(4, id\): rows of it are of "),
        (("truncate(9, name)",), [row(0, 1, name="x" * 5000), row(0, 1, name="y" * 5000)], r"of truncate\(9, name\)"),
        (("country",), [row(0, 1), (None, NEW_YEAR, 1, "a")], "'country' is null in some rows"),
    ],
)
def test_a_file_of_two_partitions_is_refused(table: IcebergTable, keys: tuple[str, ...], rows: list[Row], why: str) -> None:
    with pytest.raises(StageRejectedError, match=why):
        publish(table, rows, keys=keys)
    assert table.current() is None


def test_nothing_has_a_partition_of_its_own(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [("DE", None, None, None), ("DE", None, None, None)], [row(0, 7)])
    assert len(table.sample(10)) == 2 + 1
    assert physical(catalog).scan("ts is null").to_arrow().num_rows == 2
    assert len(list(physical(catalog).scan("ts is null").plan_files())) == 1


@pytest.mark.parametrize("key", ["day(ts)", "bucket(4, id)", "truncate(2, name)"])
def test_a_file_without_rows_disturbs_nothing(table: IcebergTable, key: str) -> None:
    publish(table, [], [row(0, 1)], keys=(key,))
    assert rows_of(table) == [row(0, 1)]


def test_long_texts_have_no_bounds_and_a_partition_all_the_same(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1, name="x" * 9000 + "1"), row(0, 1, name="x" * 9000 + "2")], keys=("truncate(3, name)",))
    (task,) = physical(catalog).scan().plan_files()
    assert task.file.partition[0] == "xxx"


def test_the_partitions_of_a_column_are_replaced_alone(table: IcebergTable) -> None:
    publish(table, [row(0, 1)], [row(1, 2)], [row(0, 3, "FR")])
    publish(table, [row(5, 9)], partitions=PartitionSet.of([{"country": "DE"}]))
    assert [(country, number) for country, _, number, _ in rows_of(table)] == [("DE", 9), ("FR", 3)]
    with pytest.raises(StageRejectedError, match="which was not planned"):
        publish(table, [row(5, 9, "FR")], partitions=PartitionSet.of([{"country": "DE"}]))


def test_other_keys_need_a_full_refresh(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1)], [row(1, 2)])
    layout = table.layout()
    assert layout is not None
    assert layout.partition_keys == KEYS
    with pytest.raises(SchemaEvolutionError, match=r"is partitioned by \(country, day\(ts\), bucket\(4, id\)\).*--full-refresh"):
        publish(table, [row(0, 1)], keys=("country", "day(ts)", "bucket(8, id)"))
    publish(table, [row(0, 1)], [row(40, 2)], keys=("month(ts)",), rebuild=layout.rebuild)
    assert len(list(physical(catalog).scan("ts > '2026-02-01T00:00:00+00:00'").plan_files())) == 1
    publish(table, [row(0, 1)], keys=KEYS, rebuild=layout.rebuild)
    assert len(physical(catalog).specs()) == 3, "the table has no keys at first; old ones come back as they were"


def test_a_version_with_other_keys_comes_back(table: IcebergTable) -> None:
    publish(table, [row(0, 1)], [row(1, 2)])
    publish(table, [row(7, 3)], keys=("country",), rebuild=Rebuild.EVERYTHING)
    with pytest.raises(SchemaEvolutionError, match="rollback --with-columns"):
        table.stage("back").restore(1, lambda: None)
    table.stage("again").restore(1, lambda: None, with_columns=True)
    layout = table.layout()
    assert layout is not None
    assert layout.partition_keys == KEYS
    assert [number for _, _, number, _ in rows_of(table)] == [1, 2]


def test_a_version_is_restored_and_old_ones_are_forgotten(table: IcebergTable) -> None:
    publish(table, [row(0, 1)])
    publish(table, [row(0, 2)])
    table.stage("back").restore(1, lambda: None)
    assert [number for _, _, number, _ in rows_of(table)] == [1]
    assert table.expire(Retention(1, timedelta()), datetime.now(UTC) + timedelta(days=9), lambda: ()) == 2
    assert [number for _, _, number, _ in rows_of(table)] == [1]


def test_small_files_of_a_partition_become_one(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1)], [row(0, 1)], [row(1, 1)], [row(1, 3)], [("DE", None, None, None)], [("DE", None, None, None)])
    before = sorted(map(str, table.sample(100)))
    for partitions in table.scattered(SMALL):
        table.stage(str(uuid4())).compact(partitions, SMALL, lambda: None)
    tasks = list(physical(catalog).scan().plan_files())
    assert len(tasks) == 4, "one for each day and bucket, and for nothing"
    assert sorted(map(str, table.sample(100))) == before
    assert len(list(physical(catalog).scan("ts < '2026-01-02T00:00:00+00:00'").plan_files())) == 1


def test_rows_are_counted_and_partitions_shown(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1), row(0, 1)], [row(1, 2, "FR")])
    counted = table.count(PartitionSet.of([{"country": "DE"}]))
    assert counted is not None
    assert (counted.total, counted.replaced, counted.partitions) == (3, 2, 2)
    entry = catalog.get_table(ObjectPath("sales", "t"))
    assert getattr(entry, "partition_keys", None) == KEYS
    shown = catalog.list_partitions(ObjectPath("sales", "t"))
    assert shown == [
        {"country": "DE", "day(ts)": "2026-01-01", "bucket(4, id)": "0"},
        {"country": "FR", "day(ts)": "2026-01-02", "bucket(4, id)": "0"},
    ]


def test_rows_of_others_are_read_and_replaced(table: IcebergTable, catalog: SqlCatalog, tmp_path: Path) -> None:
    publish(table, [row(0, 1)], keys=("country", "day(ts)"))
    file = tmp_path / "foreign.parquet"
    pq.write_table(pa.Table.from_pylist([dict(zip(SCHEMA.names, row(3, 5), strict=True))], SCHEMA), file)
    physical(catalog).add_files([f"file://{file}"])
    assert [number for _, _, number, _ in rows_of(table)] == [1, 5]
    assert len(table.read().files) == 2
    publish(table, [row(0, 2)], keys=("country", "day(ts)"), partitions=PartitionSet.of([{"country": "DE"}]))
    assert [number for _, _, number, _ in rows_of(table)] == [2]


def test_a_file_of_other_keys_that_holds_planned_rows_beside_others_is_not_left_beside_new_ones(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    german = PartitionSet.of([{"country": "DE"}])
    publish(table, [row(0, 1)], [row(0, 2, "FR")], keys=("country",))
    with physical(catalog).update_spec() as spec:
        spec.remove_field("country")
    rows = [dict(zip(SCHEMA.names, one, strict=True)) for one in (row(0, 3), row(0, 4, "FR"))]
    physical(catalog).append(pa.Table.from_pylist(rows, SCHEMA))
    with physical(catalog).update_spec() as spec:
        spec.add_identity("country")
    assert table.count(german) is None, "nobody knows"
    with pytest.raises(
        StageRejectedError, match=r"was written when the table had other partition keys, and holds rows of planned"
    ):
        publish(table, [row(0, 9)], keys=("country",), partitions=german)
    assert [number for _, _, number, _ in rows_of(table)] == [1, 3, 2, 4]
    publish(table, [row(0, 9)], keys=("country",))
    assert [number for _, _, number, _ in rows_of(table)] == [9]


def test_a_file_of_other_keys_that_tells_enough_is_replaced(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1)], [row(0, 2, "FR")], keys=("country",))
    with physical(catalog).update_spec() as spec:
        spec.add_field("ts", "day", "ts_day")
    publish(table, [row(0, 9)], keys=("country", "day(ts)"), partitions=PartitionSet.of([{"country": "DE"}]))
    assert [number for _, _, number, _ in rows_of(table)] == [9, 2]


def test_a_table_is_read_whose_former_key_is_no_column_any_more(table: IcebergTable, catalog: SqlCatalog) -> None:
    publish(table, [row(0, 1)], [row(0, 2, "FR")], keys=("country", "name"))
    with physical(catalog).update_spec() as spec:
        spec.remove_field("name")
    with physical(catalog).update_schema() as schema:
        schema.delete_column("name")
    assert catalog.list_partitions(ObjectPath("sales", "t")) == [{"country": "DE"}, {"country": "FR"}]
    content = table.read()
    assert content.state is not None
    assert sorted(content.state.partitions or ()) == ["country=DE", "country=FR"]
    counted = table.count(PartitionSet.of([{"country": "DE"}]))
    assert counted is not None
    assert (counted.total, counted.replaced) == (2, 1)


def test_no_column_takes_the_name_of_partitions(table: IcebergTable) -> None:
    columns = (*COLUMNS[:3], replace(COLUMNS[3], name="ts_day"))
    with pytest.raises(UnsupportedError, match=r"calls the partitions of day\(ts\) 'ts_day', which is a column"):
        publish(table, [row(0, 1)], columns=columns)
    assert table.current() is None


def test_a_width_reaches_below_no_type(table: IcebergTable) -> None:
    with pytest.raises(StageRejectedError, match=r"truncate\(1000, id\): -\d+ is less than its type long holds"):
        publish(table, [row(0, -(2**63) + 1)], keys=("truncate(1000, id)",))
