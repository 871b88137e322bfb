"""Rows that another engine deleted beside the files: left out where that is known, refused where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.exceptions import CommitRejectedError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.iceberg.deletions import positions
from airflow_dynamic_tables.formats.iceberg.producing import InOrder
from airflow_dynamic_tables.formats.iceberg.reading import news
from airflow_dynamic_tables.formats.small_files import Limits
from tests.support.benches.staging import Bench

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


class ManifestOfDeletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class Deletion(InOrder["Deletion"], _FastAppendFiles):
    """A snapshot of another engine that deletes rows beside the files; PyIceberg itself writes none."""

    deletes: Sequence[DataFile] = ()

    def _existing_manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        with ManifestOfDeletes(
            metadata.spec(), metadata.schema(), self.new_manifest_output(), self._snapshot_id, "null"
        ) as writer:
            for file in self.deletes:
                entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)
                writer.add(entry)
        return [writer.to_manifest_file(), *super()._existing_manifests()]


def delete(table: Table, day: str, rows: Sequence[int], content: DataFileContent = DataFileContent.POSITION_DELETES) -> None:
    """Delete rows of the file of a day by their places, as merge-on-read has it."""
    (data,) = [task.file for task in table.scan(f"ds = '{day}'").plan_files()]
    path = Path(table.location().removeprefix("file://"), "data", f"deletes-{day}-{rows[0]}.parquet")
    pq.write_table(pa.table({"file_path": [data.file_path] * len(rows), "pos": pa.array(rows, pa.int64())}), path)
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[2] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        deletion = Deletion(Operation.DELETE, transaction, table.io)
        deletion.deletes = (file,)
        deletion.commit()


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
        SourcePart(tuple(file for file in content.files if file != deleted_from)),
        SourcePart((deleted_from,), deleted=(0, 3)),
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


def test_a_refresh_replaces_the_rest(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [0])
    bench.refresh({"1": [7, 8]}, "1")
    assert bench.rows() == {"1": [7, 8], "2": [20, 21]}
    assert bench.table.read().parts == ()


def test_a_rollback_brings_deleted_rows_back(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "2", [0])
    bench.stage("back").restore(1, lambda: None)
    assert bench.rows() == {"1": [10, 11, 12, 13], "2": [20, 21]}
    assert bench.table.read().parts == ()


def test_nothing_is_compacted_and_no_stream_reads(bench: Bench, catalog: SqlCatalog) -> None:
    delete(physical(catalog), "1", [0])
    limits = Limits(many=1)
    assert bench.table.scattered(limits) == []
    with pytest.raises(StageRejectedError, match="holds delete files"):
        bench.stage("compaction").compact(DAY, limits, lambda: None)
    source = Source(TableIdentifier("lake", "sales", "revenue"), "iceberg")
    assert isinstance(bench.store, IcebergStore)
    with pytest.raises(UnsupportedError, match="a stream reads none but whole files"):
        news(source, bench.store, "v", None)


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
    metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}))
    said = "has Iceberg's format version 3, which another engine gave it: it can be read as a source"
    with pytest.raises(CommitRejectedError, match=said):
        bench.commit(staged, result)
    with pytest.raises(CommitRejectedError, match=said):
        bench.stage("t3").begin()
    staged.fence()
    staged.abort()
    assert bench.rows() == {"1": [10, 11, 12, 13], "2": [20, 21]}
    assert len(bench.table.read().files) == 2
