"""Commits of Delta tables beside what others do to them; everything is read back by delta-rs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from tests.support.benches.delta import root
from tests.support.benches.staging import COLUMNS, NOON, Bench
from tests.support.delta_tables import commit_file, rewrite


def by_delta_rs(bench: Bench, version: int | None = None) -> list[tuple[str | None, int]]:
    """The rows as delta-rs reads them."""
    rows = DeltaTable(root(bench), version=version).to_pyarrow_table().to_pylist()
    return sorted(((row["ds"], row["n"]) for row in rows), key=str)


def append(bench: Bench, day: str, n: int) -> None:
    """What another engine adds."""
    write_deltalake(root(bench), pa.table({"ds": [day], "n": [n]}), mode="append")


def test_others_read_every_version(bench: Bench) -> None:
    bench.refresh({"1": [1], "a b/=%ü": [2]})
    bench.refresh({"1": [10]}, "1")
    bench.refresh({}, "a b/=%ü")
    assert by_delta_rs(bench) == [("1", 10)]
    assert [by_delta_rs(bench, version) for version in (0, 1)] == [[("1", 1), ("a b/=%ü", 2)], [("1", 10), ("a b/=%ü", 2)]]
    table = DeltaTable(root(bench))
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert [entry["operation"] for entry in table.history()] == ["WRITE"] * 3
    assert table.metadata().description == "how much"


def test_the_log_says_what_readers_leave_files_out_by(bench: Bench) -> None:
    bench.columns = (*COLUMNS, Column("text", "string"))
    bench.refresh({"1": [1, 7]})
    (added,) = (action["add"] for action in entry(bench, 0) if "add" in action)
    assert json.loads(added["stats"]) == {
        "numRecords": 2,
        "minValues": {"n": 1, "text": "1!"},
        "maxValues": {"n": 7, "text": "7!"},
        "nullCount": {"n": 0, "text": 0},
    }


def entry(bench: Bench, version: int) -> list[dict[str, dict[str, str]]]:
    return [json.loads(line) for line in commit_file(root(bench), version).read_text().splitlines()]


@pytest.mark.parametrize("planned", [(), ("1",)], ids=["all", "a partition"])
def test_rows_that_somebody_adds_before_the_commit_are_replaced_as_planned(bench: Bench, planned: tuple[str, ...]) -> None:
    bench.refresh({"1": [1], "2": [2]})
    waiting = [("1", 100), ("2", 200)]

    def somebody_appends() -> None:
        while waiting:
            append(bench, *waiting.pop())

    staged = bench.stage("t2", *planned)
    bench.commit(staged, bench.write(staged, {"1": [10]}), somebody_appends)
    assert by_delta_rs(bench) == ([("1", 10), ("2", 2), ("2", 200)] if planned else [("1", 10)])
    assert bench.table.versions()[-1].number == 2


def test_what_somebody_planned_on_the_table_before_a_commit_is_told_of_it(bench: Bench) -> None:
    """To delta-rs a commit of ours is one like any other, and its own conflicts are found."""
    bench.refresh({"1": [1]})
    before = DeltaTable(root(bench))
    bench.refresh({"1": [10]}, "1")
    with pytest.raises(CommitFailedError, match="concurrent transaction deleted data"):
        write_deltalake(before, pa.table({"ds": ["9"], "n": [9]}), mode="append")
    append(bench, "9", 9)
    assert by_delta_rs(bench) == [("1", 10), ("9", 9)]


def test_what_others_do_to_the_files_is_no_version(bench: Bench) -> None:
    bench.scatter({"1": [1, 2, 3]})
    current = bench.table.current()
    table = DeltaTable(root(bench))
    table.optimize.compact()
    table.create_checkpoint()
    assert (bench.table.current(), bench.rows()) == (current, {"1": [1, 2, 3]})
    assert len(bench.table.read().files) == 1
    assert bench.refresh({"1": [4]}, "1").number == 2
    assert by_delta_rs(bench) == [("1", 4)]


def test_after_a_restore_of_others_the_table_is_where_it_was(bench: Bench) -> None:
    first = bench.refresh({"1": [1]}, at=NOON)
    bench.refresh({"1": [2]}, at=NOON + timedelta(days=1))
    DeltaTable(root(bench)).restore(0)
    assert bench.table.current() == first
    assert bench.rows() == {"1": [1]}
    again = bench.refresh({"1": [3]}, at=NOON + timedelta(hours=1))
    assert (again.number, again.data_timestamp) == (3, NOON + timedelta(hours=1))


def test_a_vacuum_leaves_what_is_staged(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2", "1")
    result = bench.write(staged, {"1": [2]})
    DeltaTable(root(bench)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    bench.commit(staged, result)
    assert by_delta_rs(bench) == [("1", 2)]


def test_a_version_whose_files_are_gone_is_not_restored(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]})
    (added,) = (action["add"] for action in entry(bench, 0) if "add" in action)
    (root(bench) / added["path"]).unlink()
    with pytest.raises(VersionNotFoundError, match="was deleted, maybe by another engine's VACUUM"):
        bench.stage("back").restore(1, lambda: None)
    assert by_delta_rs(bench) == [("1", 2)]


def test_a_version_is_known_after_its_entry_is_gone(bench: Bench) -> None:
    version = bench.refresh({"1": [1]})
    append(bench, "2", 2)
    DeltaTable(root(bench)).create_checkpoint()
    commit_file(root(bench), 0).unlink()
    known = bench.table.current()
    assert known is not None
    assert (known.number, known.data_timestamp) == (1, NOON)
    landed = bench.table.stage(version.token).outcome()
    assert landed is not None
    assert landed.number == 1
    assert bench.refresh({"1": [3]}).number == 2


REFUSED = {
    "delta.appendOnly": "it may only be appended to",
    "delta.enableChangeDataFeed": "it keeps a change data feed",
    "delta.enableDeletionVectors": "it keeps deletion vectors",
    "delta.constraints.positive": "has the constraint positive",
    "delta.columnMapping.mode": "maps its columns by true",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_with_what_nobody_here_knows_is_refused_before_anything_is_staged(bench: Bench, name: str) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    rewrite(root(bench), 0, lambda action: action.get("metaData", {}).get("configuration", {}).update({name: "true"}))
    with pytest.raises(UnsupportedError, match=f"{REFUSED[name]}.*, so its rows cannot be replaced here; take that off"):
        bench.stage("t3").begin()
    with pytest.raises(UnsupportedError, match="its rows cannot be replaced here"):
        bench.commit(staged, result)
    assert len(DeltaTable(root(bench)).history()) == 1


def test_a_feature_that_is_not_known_is_refused(bench: Bench) -> None:
    bench.refresh({"1": [1]})

    def tracked(action: dict[str, dict[str, object]]) -> None:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["domainMetadata", "rowTracking"],
            }

    rewrite(root(bench), 0, tracked)
    with pytest.raises(UnsupportedError, match="has the feature rowTracking"):
        bench.stage("t2").begin()


def test_nothing_is_written_into_the_log_of_a_table_with_such_a_feature(bench: Bench) -> None:
    """An entry that lacks what the feature demands would stop its engine from writing. A late commit finds its number taken."""
    bench.refresh({"1": [1]})
    late = bench.stage("late")
    result = bench.write(late, {"1": [2]})

    def meanwhile() -> None:
        append(bench, "2", 2)
        with commit_file(root(bench), 1).open("a") as entry:
            protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
            entry.write("\n" + json.dumps({"protocol": protocol}))
        late.fence()
        assert not commit_file(root(bench), 2).exists()

    with pytest.raises(UnsupportedError, match="has the feature inCommitTimestamp"):
        bench.commit(late, result, meanwhile)
    assert by_delta_rs(bench) == [("1", 1), ("2", 2)]


BAD_COLUMNS = {
    "interval": (Column("n", "interval day to second"), (), "Column 'n': Delta has no type interval here; cast it"),
    "variant": (Column("n", "array<variant>"), (), "Column 'n': Delta has no type variant here"),
    "space": (Column("so many", "bigint"), (), r"Column 'so many': names in a Delta table have no space.*\(AS ...\)"),
    "case": (Column("DS", "string"), (), "Column 'DS': a Delta table does not tell cases of letters apart"),
    "time as key": (Column("at", "timestamp"), ("at",), "Partition key 'at' is of type timestamp.*CAST it AS STRING or AS DATE"),
    "double as key": (Column("x", "double"), ("x",), "Partition key 'x' is of type double"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_columns_that_a_delta_table_cannot_have_are_refused(bench: Bench, case: str) -> None:
    column, keys, message = BAD_COLUMNS[case]
    bench.partition_keys = keys
    staged = bench.stage("t1")
    result = RefreshResult("t1", "job", 0, (), (COLUMNS[0], column))
    with pytest.raises(UnsupportedError, match=message):
        bench.commit(staged, result)
    assert bench.table.current() is None


TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(38,10)", "string", "binary", "date"),
    *("timestamp", "timestamp_ntz", "array<int>", "map<string,bigint>", "struct<a:int,b:array<struct<c:date>>>"),
)


def test_every_type_comes_back_and_others_know_it(bench: Bench) -> None:
    columns = tuple(Column(f"c{number}", kind, comment=f"a {number}") for number, kind in enumerate(TYPES))
    bench.partition_keys = ()
    staged = bench.stage("t1")
    bench.commit(staged, RefreshResult("t1", "job", 0, (), columns))
    layout = bench.table.layout()
    assert layout is not None
    assert layout.columns == columns
    protocol = DeltaTable(root(bench)).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ["timestampNtz"])


def test_the_first_time_without_zone_is_told_to_readers(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    wider = (*COLUMNS, Column("at", "timestamp_ntz"))
    bench.commit(staged, RefreshResult("t2", "job", 0, (), wider))
    protocol = DeltaTable(root(bench)).protocol()
    assert protocol.reader_features == ["timestampNtz"]
    assert set(protocol.writer_features or ()) == {"appendOnly", "invariants", "timestampNtz"}
    assert bench.stage("t3").begin()


@pytest.mark.parametrize("first", [True, False], ids=["before the first commit", "later"])
def test_a_fence_keeps_others_readers(bench: Bench, first: bool) -> None:
    if not first:
        bench.refresh({"1": [1]})
    bench.stage("dead").fence()
    assert DeltaTable(root(bench)).to_pyarrow_table().num_rows == (0 if first else 1)
    assert bench.table.current() is None or not first
    with pytest.raises(TableNotFoundError) if first else nullcontext():
        bench.table.read()
    assert bench.refresh({"1": [2]}).number == (1 if first else 2)
    assert by_delta_rs(bench) == [("1", 2)]


def test_a_table_made_anew_under_a_name_has_no_old_rows(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    old = root(bench)
    assert bench.catalog is not None
    bench.catalog.drop_table(bench.path)
    assert bench.table.current() is None
    bench.is_registered = False
    bench.stage("t2")
    assert (bench.table.current(), bench.table.layout()) == (None, None)
    assert bench.catalog.get_table(bench.path).columns == ()
    assert bench.refresh({"2": [2]}).number == 1
    assert by_delta_rs(bench) == [("2", 2)]
    assert root(bench) != old
    assert DeltaTable(old).to_pyarrow_table().num_rows == 1, "the files of the other one are whoever's they were"


def test_a_table_that_is_dropped_meanwhile_gets_nothing(bench: Bench) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1]})
    with pytest.raises(CommitRejectedError, match="was dropped meanwhile"):
        bench.commit(staged, result, lambda: _drop_and_retry(bench))
    assert bench.table.stage("t1").outcome() is None


def _drop_and_retry(bench: Bench) -> None:
    """The table goes, and so does the number that the commit wanted."""
    location = root(bench)
    assert bench.catalog is not None
    bench.catalog.drop_table(bench.path)
    commit_file(location, 0).parent.mkdir()
    commit_file(location, 0).touch()


def test_the_catalog_knows_partitions_and_sizes(bench: Bench) -> None:
    bench.refresh({"1": [1, 2], "2": [3]})
    assert bench.catalog is not None
    assert bench.catalog.list_partitions(bench.path) == [{"ds": "1"}, {"ds": "2"}]
    assert bench.catalog.get_table_statistics(bench.path).rows == 3
    table = bench.catalog.get_table(bench.path)
    assert [(column.name, column.type) for column in table.columns] == [("ds", "string"), ("n", "bigint")]


def test_garbage_in_the_log_is_said_and_nothing_is_published(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    commit_file(root(bench), 1).write_text("{garbage")
    with pytest.raises(CatalogUnavailableError, match="cannot be read"):
        bench.commit(staged, result)
    commit_file(root(bench), 1).unlink()
    assert bench.commit(staged, result).number == 2


def test_what_others_write_into_tags_is_no_version(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    tags = {"dynamic-tables.token": "x", "dynamic-tables.version": "many"}
    for number, said in enumerate((tags, "text", None), 1):
        commit_file(root(bench), number).write_text(json.dumps({"commitInfo": {"timestamp": 1, "operation": "X", "tags": said}}))
    assert [version.number for version in bench.table.versions()] == [1]
    assert bench.refresh({"1": [2]}).number == 2


def test_files_that_are_not_what_the_job_said_are_refused(bench: Bench) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1]})
    (column,) = (column for column in COLUMNS if column.name == "n")
    with pytest.raises(StageRejectedError, match="has int64 in column 'n', not string"):
        bench.commit(staged, replace(result, columns=(COLUMNS[0], replace(column, type="string"))))
    with pytest.raises(StageRejectedError, match="has columns n, not n, more"):
        bench.commit(staged, replace(result, columns=(*COLUMNS, Column("more", "int"))))
    assert bench.table.current() is None


def test_a_null_of_others_is_a_partition(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    write_deltalake(root(bench), pa.table({"ds": pa.array([None], pa.string()), "n": [5]}), mode="append")
    counts = bench.table.count(PartitionSet.of([{"ds": "1"}]))
    assert counts is not None
    assert (counts.replaced, counts.total) == (1, 2)
    bench.refresh({"1": [2]}, "1")
    assert by_delta_rs(bench) == [("1", 2), (None, 5)]
    staged = bench.stage(str(uuid4()))
    bench.commit(staged, bench.write(staged, {}))
    assert by_delta_rs(bench) == []
