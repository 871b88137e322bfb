"""Folders of files for ``atomicity: none``: no promise of one step, but the same checks, and a version that the token finds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RESULT_FILE, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    SchemaEvolutionError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, RowCounts, StagedTable
from airflow_dynamic_tables.formats.folder import FolderTable

SALES = ObjectPath("Säle", "re venue")
COLUMNS = (Column("ds", "string"), Column("n", "bigint"))
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@dataclass
class FolderBench:
    """A folder table and a job that writes with PyArrow."""

    warehouse: Path
    format: str
    keys: tuple[str, ...] = ("ds",)
    planned: dict[str, PartitionSet] = field(default_factory=dict)

    @property
    def table(self) -> FolderTable:
        return FolderTable(FolderStore("lake", f"file://{self.warehouse}"), SALES, self.format)

    @property
    def location(self) -> Path:
        return next(self.warehouse.glob("*/*"))

    def stage(self, token: str, *days: str) -> StagedTable:
        if days or token not in self.planned:  # who only looks a token up does not change its plan
            self.planned[token] = PartitionSet.of({"ds": day} for day in days) if days else WHOLE_TABLE
        return self.table.stage(token)

    def request(self, result: RefreshResult, at: datetime = NOON) -> CommitRequest:
        return CommitRequest(result, at, {"lake.raw.o": "1"}, self.keys, self.planned[result.token])

    def write(self, staged: StagedTable, rows: dict[str, list[int]], columns: tuple[Column, ...] = COLUMNS) -> RefreshResult:
        stage, files = staged.begin(), []
        for day, values in rows.items():
            folder = f"ds={quote(day, safe='')}/" if self.keys else ""
            name = f"data/{folder}part-{uuid4()}.{self.format}"
            file = Path(stage.removeprefix("file://"), name)
            file.parent.mkdir(parents=True, exist_ok=True)
            table = pa.table({"n": pa.array(values, pa.int64())} | ({} if self.keys else {"ds": [day] * len(values)}))
            pq.write_table(table, file) if self.format == "parquet" else pa_orc.write_table(table, file)
            files.append(StagedFile(f"{stage}/{name}", file.stat().st_size))
        touched = tuple({"ds": day} for day in rows) if self.keys else ()
        token = stage.rpartition("/")[2]
        result = RefreshResult(token, "job", sum(map(len, rows.values())), tuple(files), columns, touched)
        write_text(f"{stage}/{RESULT_FILE}", result.to_json())
        return result

    def refresh(self, rows: dict[str, list[int]], *days: str, at: datetime = NOON) -> Version:
        staged = self.stage(str(uuid4()), *days)
        return staged.commit(self.request(self.write(staged, rows), at), lambda: None)

    def rows(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in self.table.sample(100):
            found.setdefault(row["ds"], []).append(row["n"])
        return {day: sorted(values) for day, values in sorted(found.items())}


@pytest.fixture(params=["parquet", "orc"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> FolderBench:
    return FolderBench(tmp_path / "warehouse", request.param)


def test_planned_partitions_are_replaced_and_the_rest_stays(folder: FolderBench) -> None:
    assert folder.table.current() is None
    assert folder.table.count(WHOLE_TABLE) is None
    with pytest.raises(TableNotFoundError):
        folder.table.read()
    first = folder.refresh({"1": [1], "a b/c=%": [2], "3": [3]})
    assert (first.number, first.data_timestamp, first.sources) == (1, NOON, {"lake.raw.o": "1"})
    second = folder.refresh({"3": [30, 31]}, "a b/c=%", "3", at=NOON - timedelta(days=1))
    assert (second.number, second.data_timestamp) == (2, NOON)
    assert folder.rows() == {"1": [1], "3": [30, 31]}
    assert sorted(path.name for path in folder.location.iterdir() if path.name[0] != "_") == ["ds=1", "ds=3"]
    assert folder.table.count(PartitionSet.of([{"ds": "3"}, {"ds": "4"}])) == RowCounts(2, 1, 3, 2)
    folder.refresh({"5": [5]})
    assert folder.rows() == {"5": [5]}
    assert folder.table.current() == folder.table.versions()[-1]


def test_anybody_can_read_the_folder(folder: FolderBench) -> None:
    folder.refresh({"2024-01-01": [1], "2024-01-02": [2]})
    content = folder.table.read()
    assert (content.format, content.partition_keys, content.schema) == (folder.format, ("ds",), "`ds` string, `n` bigint")
    assert content.base_path == f"file://{folder.location}"
    files = [Path(file.removeprefix("file://")) for file in content.files]
    assert sorted(files) == sorted(folder.location.glob(f"ds=*/*.{folder.format}"))
    read = pq.ParquetFile(files[0]).read() if folder.format == "parquet" else pa_orc.read_table(files[0])
    assert read.column_names == ["n"]


def test_a_sample_shows_partition_keys_by_their_types(folder: FolderBench) -> None:
    staged = folder.stage("t1")
    result = folder.write(staged, {"7": [1], NULL_PARTITION: [2]}, (Column("ds", "int"), Column("n", "bigint")))
    staged.commit(folder.request(result), lambda: None)
    assert sorted(folder.table.sample(9), key=str) == [{"ds": 7, "n": 1}, {"ds": None, "n": 2}]


def test_an_unpartitioned_table(folder: FolderBench) -> None:
    folder.keys = ()
    folder.refresh({"a": [1]})
    folder.refresh({"b": [2], "c": [3]})
    assert folder.rows() == {"b": [2], "c": [3]}
    assert folder.table.read().base_path is None
    folder.refresh({})
    assert folder.rows() == {}


def test_the_token_finds_its_version(folder: FolderBench) -> None:
    staged = folder.stage("t1", "1")
    result = folder.write(staged, {"1": [1]})
    assert staged.outcome() is None
    version = staged.commit(folder.request(result), lambda: None)
    folder.refresh({"2": [2]}, "2")
    assert folder.stage("t1").outcome() == version
    assert staged.commit(folder.request(result), lambda: None) == version
    assert folder.rows() == {"1": [1], "2": [2]}
    assert not Path(staged.begin().removeprefix("file://")).exists()


def test_what_is_not_as_planned_is_refused_before_anything_is_replaced(folder: FolderBench) -> None:
    folder.refresh({"1": [1]})
    staged = folder.stage("t2", "1")
    result = folder.write(staged, {"1": [2], "2": [3]})

    def commit(changed: RefreshResult) -> None:
        staged.commit(folder.request(changed), lambda: pytest.fail("must not be published"))

    with pytest.raises(StageRejectedError, match="ds=2, which was not planned"):
        commit(result)
    with pytest.raises(StageRejectedError, match="ds=2, which was not planned"):
        commit(replace(result, partitions=({"ds": "1"},)))
    with pytest.raises(StageRejectedError, match="hold 1 rows, the job wrote 2"):
        commit(replace(result, files=result.files[:1], rows=2, partitions=({"ds": "1"},)))
    with pytest.raises(SchemaEvolutionError, match="was n bigint"):
        commit(replace(result, partitions=(), columns=(COLUMNS[0], Column("n", "string"))))
    Path(result.files[0].path.removeprefix("file://")).unlink()
    with pytest.raises(StageRejectedError, match="missing or damaged"):
        commit(replace(result, files=result.files[:1], rows=1, partitions=()))
    folder.keys = ()
    with pytest.raises(StageRejectedError, match=r"is partitioned by \(ds\), its definition now by \(\)"):
        folder.refresh({"1": [2]})
    folder.keys = ("ds",)
    assert folder.rows() == {"1": [1]}


def test_files_of_somebody_else_are_never_replaced(folder: FolderBench) -> None:
    folder.refresh({"1": [1]})
    mine = folder.location / "mine.parquet"
    mine.write_text("not to be lost")
    for record in folder.location.glob("_versions/*"):
        record.unlink()
    with pytest.raises(StageRejectedError, match="is there already and of no refresh; choose another name"):
        folder.refresh({"1": [2]})
    assert mine.read_text() == "not to be lost"


def test_a_stage_that_was_given_up_cannot_become_a_version(folder: FolderBench) -> None:
    folder.refresh({"1": [1]})
    staged = folder.stage("zombie", "1")
    result = folder.write(staged, {"1": [666]})
    with pytest.raises((CommitRejectedError, CommitUnknownError)):
        staged.commit(folder.request(result), lambda: folder.stage("zombie", "1").abort())
    folder.stage("zombie", "1").fence()
    assert staged.outcome() is None
    assert folder.rows() == {"1": [1]}


def test_a_failure_in_the_middle_is_an_unknown_outcome(folder: FolderBench) -> None:
    folder.refresh({"1": [1]})
    staged = folder.stage("t2", "2")
    result = folder.write(staged, {"2": [2]})

    def in_the_way() -> None:
        (folder.location / "ds=2").write_text("no folder")

    with pytest.raises(CommitUnknownError, match="refresh the same partitions again"):
        staged.commit(folder.request(result), in_the_way)
    assert staged.outcome() is None


def test_refreshing_again_heals_what_a_death_left_in_the_middle(folder: FolderBench) -> None:
    folder.refresh({"1": [1], "2": [2]})
    staged = folder.stage("dead", "1", "2")
    result = folder.write(staged, {"1": [10], "2": [20]})
    source = Path(result.files[0].path.removeprefix("file://"))
    source.rename(folder.location / "ds=1" / source.name)
    assert staged.outcome() is None
    staged.abort()
    assert folder.rows() == {"1": [1, 10], "2": [2]}, "that is what atomicity: none means"
    folder.refresh({"1": [10], "2": [20]}, "1", "2")
    assert folder.rows() == {"1": [10], "2": [20]}


def test_earlier_versions_are_not_kept(folder: FolderBench) -> None:
    for number in range(25):
        folder.refresh({"1": [number]})
    assert [version.number for version in folder.table.versions()] == [25]
    assert len(list(folder.location.glob("_versions/*"))) == 20
    with pytest.raises(VersionNotFoundError, match="kept are: 25"):
        folder.table.sample(1, 24)
    with pytest.raises(UnsupportedError, match="keeps no earlier versions"):
        folder.stage("t").restore(25, lambda: None)


def test_two_at_once_take_different_numbers(folder: FolderBench) -> None:
    folder.refresh({"0": [0]}, "0")
    staged = folder.stage("t1", "1")
    result = folder.write(staged, {"1": [1]})
    refreshes = iter([{"2": [2]}])

    def overtake() -> None:
        folder.refresh(next(refreshes), "2")

    version = staged.commit(folder.request(result), overtake)
    assert version.number == 3
    assert folder.rows() == {"0": [0], "1": [1], "2": [2]}


def test_only_stages_that_are_not_held_are_deleted(folder: FolderBench) -> None:
    folder.refresh({"1": [1]})
    living, dead = folder.stage("living", "2"), folder.stage("dead", "2")
    result = folder.write(living, {"2": [2]})
    folder.write(dead, {"2": [666]})
    later = datetime.now(UTC) + timedelta(days=3)
    assert folder.table.delete_orphans(datetime.now(UTC) - timedelta(days=1), lambda: ()).files == 0
    assert folder.table.delete_orphans(later, lambda: [living.begin()]).files == 2
    living.commit(folder.request(result), lambda: None)
    assert folder.rows() == {"1": [1], "2": [2]}
