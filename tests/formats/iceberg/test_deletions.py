"""Rows that another engine deleted beside the files: left out where that is known, refused where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.iceberg import row_deletions as positions
from airflow_dynamic_tables.formats.iceberg.reading import added_since
from airflow_dynamic_tables.formats.small_files import Limits
from tests.support.benches.staging import Bench
from tests.support.iceberg_tables import deletion_vectors, position_deletes, publish_deletes, upgrade

DAY = PartitionSet.of([{"ds": "1"}])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/warehouse")
    with catalog:
        yield catalog


@pytest.fixture
def bench(catalog: SqlCatalog) -> Bench:
    bench = Bench(IcebergStore("lake", catalog, nullcontext))
    bench.refresh({"1": [10, 11, 12, 13], "2": [20, 21]})
    return bench


def delete(table: Table, day: str, rows: Sequence[int], content: DataFileContent = DataFileContent.POSITION_DELETES) -> None:
    """Delete rows of the file of a day by their places, as merge-on-read has it."""
    (data,) = [task.file for task in table.scan(f"ds = '{day}'").plan_files()]
    publish_deletes(table, position_deletes(table, data.partition, [(data.file_path, row) for row in rows], content))


def physical(catalog: SqlCatalog) -> Table:
    return catalog.load_table(("sales", "revenue"))


def test_a_few_deleted_rows_are_left_out(bench: Bench, catalog: SqlCatalog) -> None:
    before = bench.table.read()
    delete(physical(catalog), "1", [0, 3])
    assert bench.rows() == {"1": [11, 12], "2": [20, 21]}
    counted = bench.table.count(DAY)
    assert counted is not None
    assert (counted.total, counted.replaced) == (4, 2)
    content = bench.table.read()
    deleted_from = next(file for file in content.files if "%3D1" in file or "=1/" in file)
    assert content.parts == (
        SourcePart(tuple(file for file in content.files if file != deleted_from), partition="ds=2"),
        SourcePart((deleted_from,), deleted=(0, 3), partition="ds=1"),
    )
    assert before.state is not None
    assert content.state is not None
    moved = {name for name, told in content.state.partitions.items() if before.state.partitions[name] != told}
    assert moved == {"ds=1"}, "what reads the other day alone has nothing to do"


def test_rows_that_are_deleted_twice_are_gone_once(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [1, 2])
    delete(physical(catalog), "1", [2, 3])
    counted = bench.table.count(WHOLE_TABLE)
    assert counted is not None
    assert counted.total == 3
    assert bench.table.read().parts[-1].deleted == (1, 2, 3)


def files_by_day(table: Table) -> dict[str, DataFile]:
    return {str(task.file.partition[0]): task.file for task in table.scan().plan_files()}


def held(bench: Bench) -> dict[str, list[int]]:
    """The rows of each day, after it is checked that they are told alike wherever they are told."""
    rows = bench.rows()
    counted = bench.table.count(WHOLE_TABLE)
    assert counted is not None
    assert counted.total == sum(map(len, rows.values()))
    deleted = {file: part.deleted for part in bench.table.read().parts for file in part.files}
    assert counted.total == 6 - sum(map(len, deleted.values()))
    return rows


def test_a_delete_file_names_rows_of_several_files_in_any_row_group(bench: Bench, catalog: SqlCatalog) -> None:
    table = physical(catalog)
    file = files_by_day(table)["1"]
    places = [("file:///of/another/table.parquet", 0), (file.file_path, 0), (file.file_path, 1), (file.file_path, 3)]
    publish_deletes(table, position_deletes(table, file.partition, places), position_deletes(table, file.partition, []))
    assert held(bench) == {"1": [12], "2": [20, 21]}


def test_rows_of_another_partition_and_rows_that_are_not_there_are_not_deleted(bench: Bench, catalog: SqlCatalog) -> None:
    table = physical(catalog)
    files = files_by_day(table)
    places = [(files["1"].file_path, 99), (files["2"].file_path, 0)]
    publish_deletes(table, position_deletes(table, files["1"].partition, places))
    assert held(bench) == {"1": [10, 11, 12, 13], "2": [20, 21]}


def test_a_file_that_is_added_again_keeps_what_was_deleted_of_it_before(bench: Bench, catalog: SqlCatalog) -> None:
    file = files_by_day(physical(catalog))["1"]
    publish_deletes(physical(catalog), position_deletes(physical(catalog), file.partition, [(file.file_path, 0)]))
    physical(catalog).delete("ds = '1'")
    assert bench.rows() == {"2": [20, 21]}
    physical(catalog).add_files([file.file_path])
    assert held(bench) == {"1": [10, 11, 12, 13], "2": [20, 21]}, "a deletion is of files that are as old as itself, or older"
    publish_deletes(physical(catalog), position_deletes(physical(catalog), file.partition, [(file.file_path, 3)]))
    assert held(bench) == {"1": [10, 11, 12], "2": [20, 21]}


@pytest.mark.parametrize("version", [2, 3])
def test_deletion_vectors_are_left_out(bench: Bench, catalog: SqlCatalog, version: int) -> None:
    table = physical(catalog)
    rows = {"1": [0, 3], "2": [1]}
    vectors = {file.file_path: (file.partition, rows[day]) for day, file in files_by_day(table).items()}
    publish_deletes(table, *deletion_vectors(table, vectors))
    if version == 3:
        upgrade(physical(catalog))
    assert held(bench) == {"1": [11, 12], "2": [20]}
    assert [part.deleted for part in bench.table.read().parts] == [(0, 3), (1,)]


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more PAR1"])
def test_a_delete_file_that_is_lost_or_damaged_is_named(bench: Bench, catalog: SqlCatalog, content: bytes | None) -> None:
    table = physical(catalog)
    file = files_by_day(table)["1"]
    deletes = position_deletes(table, file.partition, [(file.file_path, 0)])
    publish_deletes(table, deletes)
    path = Path(deletes.file_path.removeprefix("file://"))
    path.unlink() if content is None else path.write_bytes(content)
    for read in (bench.table.read, bench.rows, lambda: bench.table.count(WHOLE_TABLE)):
        with pytest.raises(
            CatalogUnavailableError, match=rf"^Cannot read which rows another engine deleted \({deletes.file_path}"
        ):
            read()
    bench.refresh({"3": [1]})
    assert bench.rows() == {"3": [1]}


def test_a_refresh_replaces_the_rest(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [0])
    bench.refresh({"1": [7, 8]}, "1")
    assert bench.rows() == {"1": [7, 8], "2": [20, 21]}
    assert [part.deleted for part in bench.table.read().parts] == [(), ()]


def test_a_rollback_brings_deleted_rows_back(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "2", [0])
    bench.stage("back").restore(1, lambda: None)
    assert bench.rows() == {"1": [10, 11, 12, 13], "2": [20, 21]}
    assert [part.deleted for part in bench.table.read().parts] == [(), ()]


def test_nothing_is_compacted_and_no_stream_reads(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [0])
    limits = Limits(many=1)
    assert bench.table.scattered(limits) == []
    with pytest.raises(StageRejectedError, match="holds delete files"):
        bench.stage("compaction").compact(DAY, limits, lambda: None)
    source = Source(TableIdentifier("lake", "sales", "revenue"), "iceberg")
    assert isinstance(bench.store, IcebergStore)
    with pytest.raises(UnsupportedError, match="a stream reads none but whole files"):
        added_since(source, bench.store, "v", None)


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_ROWS"])
def test_many_deleted_rows_are_for_icebergs_own_runtime(
    bench: Bench, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    delete(physical(catalog), "1", [0])
    delete(physical(catalog), "2", [0])
    monkeypatch.setattr(positions, limit, 1)
    with pytest.raises(UnsupportedError, match="than are left out here; to read it, add the Iceberg Spark runtime jar"):
        bench.table.read()
    assert bench.table.read("lake.sales.revenue").table == "lake.sales.revenue"
    assert bench.table.count(WHOLE_TABLE) is None
    assert bench.rows() == {"1": [11, 12, 13], "2": [21]}


def test_rows_deleted_by_their_values_are_refused(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [0], DataFileContent.EQUALITY_DELETES)
    why = "holds rows that another engine deleted by their values"
    with pytest.raises(UnsupportedError, match=why):
        bench.table.read()
    with pytest.raises(UnsupportedError, match=why):
        bench.rows()
    assert bench.table.count(WHOLE_TABLE) is None
    bench.refresh({"3": [1]})
    assert bench.rows() == {"3": [1]}, "of what is replaced nothing is left to delete"


def test_a_table_of_a_later_format_version_is_read_and_not_written(bench: Bench, catalog: SqlCatalog) -> None:
    table = physical(catalog)
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [1]})
    upgrade(table)
    said = "has Iceberg's format version 3, which another engine gave it: it can be read as a source"
    with pytest.raises(CommitRejectedError, match=said):
        bench.commit(staged, result)
    with pytest.raises(CommitRejectedError, match=said):
        bench.stage("t3").begin()
    staged.fence()
    staged.abort()
    assert bench.rows() == {"1": [10, 11, 12, 13], "2": [20, 21]}
    assert len(bench.table.read().files) == 2
