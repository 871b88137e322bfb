"""What only Iceberg tables promise: one snapshot a commit, few manifests, answers that get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
    UnsupportedError,
)
from tests.support.benches.staging import COLUMNS, Bench

NAME = ("sales", "revenue")


class LosingCatalog(SqlCatalog):
    """A catalog whose answers get lost now and then."""

    lose: Callable[[Callable[[], Any]], Any] | None = None

    def commit_table(self, *arguments: Any) -> Any:
        commit = super().commit_table
        lose, self.lose = self.lose, None
        return lose(lambda: commit(*arguments)) if lose else commit(*arguments)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LosingCatalog]:
    catalog = LosingCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/warehouse")
    with catalog:
        yield catalog


@pytest.fixture
def lake(catalog: LosingCatalog) -> Bench:
    return Bench(IcebergStore("lake", catalog, nullcontext))


def manifests(table: Table) -> int:
    snapshot = table.current_snapshot()
    return len(snapshot.manifests(table.io)) if snapshot else 0


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_every_commit_is_one_snapshot(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"1": [1], "2": [2]})
    lake.refresh({"2": [20]}, "2")
    lake.refresh({}, "1")
    history = catalog.load_table(NAME).snapshots()
    assert [snapshot.summary.operation.value for snapshot in history if snapshot.summary] == ["append", "overwrite", "overwrite"]
    seen = [catalog.load_table(NAME).scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist() for snapshot in history]
    assert [sorted((row["ds"], row["n"]) for row in rows) for rows in seen] == [
        [("1", 1), ("2", 2)],
        [("1", 1), ("2", 20)],
        [("2", 20)],
    ]


def test_a_column_that_another_engine_dropped_returns_with_its_values(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"1": [1], "2": [2]})
    table = catalog.load_table(NAME)
    table.overwrite(pa.table({"ds": ["1", "2"], "n": pa.array([1, 2], pa.int64())}))  # files that number their columns
    with table.update_schema() as update:
        update.delete_column("n")
    lake.refresh({"2": [20]}, "2")
    assert lake.rows() == {"1": [1], "2": [20]}
    assert lake.table.read().files, "it is read by name again"


def test_totals_of_the_summary_are_right(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"1": [1, 1], "2": [2], "3": [3]})
    lake.refresh({"2": [20, 21, 22]}, "2", "3")
    summary = catalog.load_table(NAME).current_snapshot().summary
    wanted = {"added-data-files": "1", "deleted-data-files": "2", "added-records": "3", "deleted-records": "2"}
    totals = {"total-data-files": "2", "total-records": "5"}
    assert {key: summary[key] for key in wanted | totals} == wanted | totals


def test_full_refreshes_do_not_pile_up_manifests(lake: Bench, catalog: Catalog) -> None:
    for n in range(6):
        lake.refresh({"1": [n], "2": [n]})
    assert manifests(catalog.load_table(NAME)) == 2, "what was added, and what was taken out"


def test_manifests_of_many_partition_refreshes_are_merged(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"0": [0]}, "0")
    with catalog.load_table(NAME).transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "4"})
    wanted = {"0": [0]}
    for n in range(1, 16):
        day = str(n % 11)
        lake.refresh({day: [n]}, day)
        wanted = dict(sorted({**wanted, day: [n]}.items()))
        assert lake.rows() == wanted
        assert manifests(catalog.load_table(NAME)) <= 5
    tasks = list(catalog.load_table(NAME).scan().plan_files())
    assert sorted(task.file.partition[0] for task in tasks) == sorted(wanted)


def test_comments_are_kept_with_the_table_and_follow_the_definition(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"1": [1]})
    assert catalog.load_table(NAME).properties["comment"] == "how much"
    staged = lake.stage("t2")
    commented = (Column("ds", "string", comment="the day"), COLUMNS[1], Column("a.b", "string", comment="new"))
    request = lake.request(lake.write(staged, {"1": [2]}, commented))
    staged.commit(replace(request, comment="how much, by day"), lambda: None)
    table = catalog.load_table(NAME)
    assert table.properties["comment"] == "how much, by day"
    assert [(field.name, field.doc) for field in table.schema().fields] == [("ds", "the day"), ("n", None), ("a.b", "new")]
    staged = lake.stage("t3", "1")
    lake.commit(staged, lake.write(staged, {"1": [3]}, (*COLUMNS, Column("a.b", "string"))))
    assert catalog.load_table(NAME).schema().find_field("ds").doc == "the day", "no comment is no wish to delete it"


def test_a_table_made_by_others_can_be_refreshed_and_fenced(lake: Bench, catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "ds", StringType(), required=False), NestedField(2, "n", LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ds"))
    catalog.create_namespace("sales")
    catalog.create_table(NAME, schema, partition_spec=spec).append(pa.table({"ds": ["1", None], "n": [1, 0]}, _arrow()))
    lake.refresh({"1": [10]}, "1")
    rows = sorted(lake.table.sample(10), key=str)
    assert rows == [{"ds": "1", "n": 10}, {"ds": None, "n": 0}]
    staged = lake.stage("zombie", "1")
    result = lake.write(staged, {"1": [666]})

    def given_up(fenced: list[bool] = []) -> None:  # noqa: B006 - remembers between attempts
        if fenced:
            raise CommitRejectedError("given up")
        lake.stage("zombie", "1").fence()
        fenced.append(True)

    with pytest.raises(CommitRejectedError, match="given up"):
        lake.commit(staged, result, given_up)
    assert sorted(lake.table.sample(10), key=str) == rows
    assert "commit.retry.num-retries" not in catalog.load_table(NAME).properties, "others keep their retries"


def _arrow() -> pa.Schema:
    return pa.schema([("ds", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize("first", [True, False], ids=["making the table", "changing it"])
def test_a_lost_answer_of_a_commit_that_landed_is_looked_up(lake: Bench, catalog: LosingCatalog, first: bool) -> None:
    if not first:
        lake.refresh({"0": [0]}, "0")
    staged = lake.stage("t1", "1")
    result = lake.write(staged, {"1": [1]})

    def answer_lost(commit: Callable[[], Any]) -> Any:
        commit()
        raise ConnectionError("connection reset by peer")

    catalog.lose = answer_lost
    assert lake.commit(staged, result).token == "t1"
    assert lake.rows()["1"] == [1]


def never_sent(_: Callable[[], Any]) -> Any:
    raise ConnectionError("connection refused")


def test_a_lost_question_is_asked_again_once_the_table_is_fenced(lake: Bench, catalog: LosingCatalog) -> None:
    lake.refresh({"0": [0]}, "0")
    staged, asked = lake.stage("t1", "1"), []
    catalog.lose = never_sent
    assert lake.commit(staged, lake.write(staged, {"1": [1]}), lambda: asked.append(1)).number == 2
    assert len(asked) == 2
    assert lake.rows() == {"0": [0], "1": [1]}


def test_a_lost_question_leaves_the_outcome_unknown_until_the_table_can_be_asked(lake: Bench, catalog: LosingCatalog) -> None:
    lake.refresh({"0": [0]}, "0")
    staged = lake.stage("t1", "1")
    result = lake.write(staged, {"1": [1]})
    metadata = local(catalog.load_table(NAME).metadata_location)

    def lost_for_a_while(_: Callable[[], Any]) -> Any:
        metadata.rename(metadata.with_suffix(".away"))
        raise ConnectionError("connection refused")

    catalog.lose = lost_for_a_while
    with pytest.raises(CommitUnknownError, match="connection refused"):
        lake.commit(staged, result)
    metadata.with_suffix(".away").rename(metadata)
    assert staged.outcome() is None
    assert local(result.files[0].path).exists(), "nobody deletes on a guess"
    assert lake.commit(staged, result).number == 2


def test_a_lost_question_of_the_first_commit_is_asked_again_like_any_other(lake: Bench, catalog: LosingCatalog) -> None:
    staged = lake.stage("t1", "1")
    result = lake.write(staged, {"1": [1]})
    catalog.lose = never_sent
    assert lake.commit(staged, result).number == 1
    assert lake.rows() == {"1": [1]}


def test_a_table_that_was_dropped_meanwhile_does_not_come_back(lake: Bench, catalog: Catalog) -> None:
    staged = lake.stage("t1", "1")
    result = lake.write(staged, {"1": [1]})
    catalog.drop_table(NAME)
    with pytest.raises(CommitRejectedError, match=r"sales\.revenue was dropped meanwhile"):
        lake.commit(staged, result)
    assert not catalog.table_exists(NAME)
    lake.refresh({"2": [2]})
    with pytest.raises(CommitRejectedError, match=r"sales\.revenue was dropped and recreated"):
        lake.commit(staged, result)
    assert lake.rows() == {"2": [2]}


def test_a_table_that_changes_all_the_time_ends_the_commit(
    lake: Bench, catalog: LosingCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.refresh({"0": [0]}, "0")
    staged, asked = lake.stage("t1", "1"), []
    result = lake.write(staged, {"1": [1]})
    monkeypatch.setattr("time.sleep", lambda _: None)

    def somebody_else_was_first(_: Callable[[], Any]) -> Any:
        raise CommitFailedException("Requirement failed: branch main has changed")

    def before_publish() -> None:
        asked.append(1)
        catalog.lose = somebody_else_was_first

    monkeypatch.setattr("airflow_dynamic_tables.formats.commits.PATIENCE", 2)
    with pytest.raises(CommitRejectedError, match=r"was changed by others \d+ times while committing; try again"):
        lake.commit(staged, result, before_publish)
    assert len(asked) > 10
    assert lake.rows() == {"0": [0]}


def test_what_the_catalog_accepted_need_not_be_looked_at(
    lake: Bench, catalog: LosingCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is away as soon as it has said yes."""

    def away(*_: Any) -> Any:
        raise CatalogUnavailableError("it is away")

    def accepted(commit: Callable[[], Any]) -> Any:
        answer = commit()
        monkeypatch.setattr(catalog, "load_table", away)
        return answer

    lake.refresh({"0": [0]}, "0")
    staged = lake.stage("t1", "1")
    result = lake.write(staged, {"1": [1]})
    catalog.lose = accepted
    assert lake.commit(staged, result).number == 2
    monkeypatch.undo()
    assert lake.rows() == {"0": [0], "1": [1]}


def test_metadata_that_is_gone_is_one_sentence(lake: Bench, catalog: Catalog) -> None:
    lake.refresh({"0": [0]}, "0")
    local(catalog.load_table(NAME).metadata_location).unlink()
    with pytest.raises(CatalogUnavailableError, match=r"Cannot read the metadata of table sales\.revenue in catalog lake"):
        lake.table.current()


@pytest.mark.parametrize(
    ("days", "statistics", "message"),
    [
        ([None, None], True, "does not say what its partition is"),
        (["1", None], True, "does not say what its partition is"),
        (["1", "1"], False, "does not say what its partition is"),
        (["1", "2"], True, "more than one partition values"),
    ],
    ids=["null", "some null", "no statistics", "two values"],
)
def test_a_file_must_be_of_one_partition(lake: Bench, days: list[str | None], statistics: bool, message: str) -> None:
    staged = lake.stage("t1")
    result = lake.write(staged, {"1": [1, 2]})
    file = local(result.files[0].path)
    pq.write_table(pa.table({"ds": days, "n": [1, 2]}, _arrow()), file, write_statistics=statistics)
    changed = replace(result, files=(replace(result.files[0], bytes=file.stat().st_size),))
    with pytest.raises(StageRejectedError, match=message):
        lake.commit(staged, changed)


def test_files_that_do_not_fit_the_columns_are_refused(lake: Bench) -> None:
    staged = lake.stage("t1")
    result = lake.write(staged, {"1": [1]})
    with pytest.raises(StageRejectedError, match=r"(?s)damaged: Mismatch in fields.*n: optional string"):
        lake.commit(staged, replace(result, columns=(COLUMNS[0], Column("n", "string"))))


@pytest.mark.parametrize("change", ["renamed", "dropped and recreated"])
def test_tables_that_cannot_be_read_by_name_are_refused(lake: Bench, catalog: Catalog, change: str) -> None:
    lake.refresh({"0": [0]}, "0")
    with catalog.load_table(NAME).update_schema() as update:
        if change == "renamed":
            update.rename_column("n", "m")
        else:
            update.delete_column("n")
    if change != "renamed":
        with catalog.load_table(NAME).update_schema() as update:
            update.add_column("n", LongType())
    with pytest.raises(UnsupportedError, match=f"had column n {change}.*add the Iceberg Spark runtime jar"):
        lake.table.read()
