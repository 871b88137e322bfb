"""What every format promises: old or new, nothing between, and the token tells which."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Base
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    SchemaEvolutionError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import RowCounts
from tests.support.benches.staging import COLUMNS, NOON, Bench


def test_the_first_commit_makes_the_table_with_its_rows(bench: Bench) -> None:
    staged = bench.stage("t1", "2024-02-29")
    assert staged.begin().endswith("/t1")
    result = bench.write(staged, {"2024-02-29": [1, 2]})
    assert bench.table.current() is None
    with pytest.raises(TableNotFoundError):
        bench.table.read()
    version = bench.commit(staged, result)
    assert (version.number, version.token, version.data_timestamp) == (1, "t1", NOON)
    assert version.sources == {"lake.raw.orders": "files:1"}
    assert bench.rows() == {"2024-02-29": [1, 2]}
    assert bench.table.current() == version


def test_a_partition_refresh_replaces_exactly_the_planned_partitions(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2], "3": [3]})
    bench.refresh({"3": [30, 31], "4": [40]}, "2", "3", "4")
    assert bench.rows() == {"1": [1], "3": [30, 31], "4": [40]}


@pytest.mark.sampled
def test_a_planned_partition_without_rows_becomes_empty(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    version = bench.refresh({}, "2")
    assert bench.rows() == {"1": [1]}
    assert version.number == 2
    assert bench.refresh({}, "7").number == 3


def test_a_full_refresh_replaces_everything(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"2": [20]})
    assert bench.rows() == {"2": [20]}


@pytest.mark.sampled
def test_an_unpartitioned_table(bench: Bench) -> None:
    bench.partition_keys = ()
    bench.refresh({"a": [1]})
    bench.refresh({"b": [2], "c": [3]})
    assert bench.rows() == {"b": [2], "c": [3]}
    bench.refresh({})
    assert bench.rows() == {}


def test_a_spec_that_leaves_out_keys_stands_for_all_their_values(bench: Bench) -> None:
    bench.partition_keys, bench.columns = ("ds", "n"), (*COLUMNS, Column("text", "string"))
    bench.refresh({"1": [1], "2": [2]})
    staged = bench.stage("t2", "2")
    result = replace(bench.write(staged, {"2": [5]}), partitions=({"ds": "2", "n": "5"},))
    bench.commit(staged, result)
    assert bench.rows() == {"1": [1], "2": [5]}


@pytest.mark.parametrize(
    "value", ["a b", "a/b", "a=b", "100%", "Grüße 漢字", "it's", 'say "x"', "", "2024-01-01 00:00:00", "#?&"]
)
def test_partition_values_may_hold_anything(bench: Bench, value: str) -> None:
    if not bench.keys_in_files and not value:
        with pytest.raises(StageRejectedError, match="a value is never empty"):
            bench.refresh({value: [1]}, value)
        return
    bench.refresh({value: [1], "other": [2]})
    bench.refresh({value: [3]}, value)
    assert bench.rows() == dict(sorted({value: [3], "other": [2]}.items()))


def test_names_may_hold_anything(bench: Bench) -> None:
    if isinstance(bench.store, PostgresStore):
        bench.path = ObjectPath(bench.path.database, f'{bench.path.name}. Rev "x"/y %20')
    else:
        bench.path = bench.names
    if bench.hive_format or isinstance(bench.catalog, HiveCatalog):
        with pytest.raises(UnsupportedError, match="where the name of a database has at most"):
            bench.refresh({"1": [1]})
        return
    bench.refresh({"1": [1]})
    assert bench.rows() == {"1": [1]}


@pytest.mark.sampled
def test_versions_count_up_and_never_grow_older(bench: Bench) -> None:
    bench.refresh({"1": [1]}, "1", at=NOON)
    bench.refresh({"0": [0]}, "0", at=NOON - timedelta(days=1))
    bench.refresh({"2": [2]}, "2", at=NOON + timedelta(days=1))
    versions = bench.table.versions()
    assert [version.number for version in versions] == [1, 2, 3]
    assert [version.data_timestamp for version in versions] == [NOON, NOON, NOON + timedelta(days=1)]
    assert bench.table.read().snapshot == versions[-1].snapshot


def test_committing_a_token_again_is_the_same_version(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1]})
    version = bench.commit(staged, result)
    bench.refresh({"2": [2]}, "2")
    assert bench.commit(staged, result) == version
    assert staged.outcome() == version
    assert bench.rows() == {"1": [1], "2": [2]}


def test_a_token_that_did_not_commit_has_no_outcome(bench: Bench) -> None:
    assert bench.stage("t1").outcome() is None
    bench.refresh({"1": [1]})
    assert bench.stage("t1").outcome() is None


def test_abort_deletes_the_stage_and_nothing_else(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2", "1")
    bench.write(staged, {"1": [2]})
    folder = Path(staged.begin().removeprefix("file://"))
    assert folder.exists()
    staged.abort()
    staged.abort()
    assert not folder.exists()
    assert bench.rows() == {"1": [1]}


def _check_fenced_commit_fails(bench: Bench) -> None:
    """The zombie read the table and was told to go ahead; then somebody gave it up."""
    staged = bench.stage("zombie", "1")
    result = bench.write(staged, {"1": [666]})
    fenced: list[bool] = []

    def given_up_meanwhile() -> None:
        if fenced:
            raise CommitRejectedError("the ledger says ABORTING")
        bench.stage("zombie", "1").fence()
        fenced.append(True)

    with pytest.raises(CommitRejectedError, match="ABORTING"):
        bench.commit(staged, result, given_up_meanwhile)
    assert fenced == [True]
    assert staged.outcome() is None


@pytest.mark.sampled
def test_a_fenced_commit_cannot_land(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    _check_fenced_commit_fails(bench)
    assert bench.rows() == {"1": [1]}
    assert [version.number for version in bench.table.versions()] == [1]
    assert bench.refresh({"1": [2]}, "1").number == 2


@pytest.mark.needs("quarantine")
def test_a_stage_that_returned_to_quarantine_is_published(bench: Bench) -> None:
    """The commit of its first publisher stays fenced off; that of the next one lands, even if one more was fenced off between."""
    bench.refresh({"1": [1]})
    staged = bench.stage("held", "1")
    result = bench.write(staged, {"1": [2]})

    def returned_meanwhile() -> None:
        if len(returned) % 2:
            returned.append("asked again")
            raise CommitRejectedError("the ledger names another publisher")
        returned.append("fenced")
        bench.stage("held", "1").fence()
        bench.stage("held", "1").reopen()

    returned: list[str] = []
    for _ in range(2):
        with pytest.raises(CommitRejectedError, match="another publisher"):
            bench.commit(staged, result, returned_meanwhile)
    assert bench.rows() == {"1": [1]}
    bench.commit(staged, result)
    assert bench.rows() == {"1": [2]}
    assert [version.token for version in bench.table.versions()][1:] == ["held"]


def test_fencing_a_commit_that_landed_changes_nothing(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    bench.commit(staged, bench.write(staged, {"1": [1]}))
    before = bench.table.read().snapshot
    staged.fence()
    assert bench.table.read().snapshot == before


def test_a_first_commit_is_fenced_off(bench: Bench) -> None:
    _check_fenced_commit_fails(bench)
    assert bench.table.current() is None
    assert bench.table.count(WHOLE_TABLE) is None
    with pytest.raises(TableNotFoundError):
        bench.table.read()
    assert bench.refresh({"1": [1]}, "1").number == 1
    assert bench.rows() == {"1": [1]}


@pytest.mark.sampled
@pytest.mark.needs("several writers")
@pytest.mark.parametrize("first", [True, False], ids=["making the table", "changing it"])
def test_racing_commits_of_other_partitions_all_land(bench: Bench, first: bool) -> None:
    days = ["1", "2", "3", "4"]
    if not first:
        bench.refresh({"0": [0]}, "0")
    start = Barrier(len(days))
    stages = {day: bench.stage(str(uuid4()), day) for day in days}
    results = {day: bench.write(stages[day], {day: [int(day)]}) for day in days}

    def commit(day: str) -> None:
        start.wait()
        bench.commit(stages[day], results[day])

    threads = [Thread(target=commit, args=(day,)) for day in days]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.rows() == {**({} if first else {"0": [0]}), **{day: [int(day)] for day in days}}
    numbers = [version.number for version in bench.table.versions()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_what_is_raised_before_publishing_ends_the_commit(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1]})

    def refuse() -> None:
        raise CommitRejectedError("not yours any more")

    with pytest.raises(CommitRejectedError, match="not yours any more"):
        bench.commit(staged, result, refuse)
    assert bench.table.current() is None


def test_a_stage_that_replaces_nothing_is_refused(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    bench.planned["t2"] = NO_PARTITIONS
    with pytest.raises(StageRejectedError, match="The plan of t2 replaces nothing"):
        bench.commit(staged, bench.write(staged, {}))
    assert bench.rows() == {"1": [1]}


def test_rows_of_a_partition_that_was_not_planned_are_refused(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1], "2": [2]})
    with pytest.raises(StageRejectedError, match="partition ds=2, which was not planned"):
        bench.commit(staged, result)
    with pytest.raises(StageRejectedError, match=r"is of partition ds=2.*, which was not planned"):
        bench.commit(staged, replace(result, partitions=({"ds": "1"},)))
    assert bench.table.current() is None


@pytest.mark.needs("files")
def test_a_vanished_file_is_refused(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1]})
    Path(result.files[0].path.removeprefix("file://")).unlink()
    with pytest.raises(StageRejectedError, match="is missing or damaged"):
        bench.commit(staged, result)


@pytest.mark.needs("files")
def test_a_truncated_file_is_refused(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1]})
    file = Path(result.files[0].path.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(StageRejectedError, match="is missing or damaged"):
        bench.commit(staged, result)


@pytest.mark.needs("files")
def test_a_result_that_does_not_fit_its_files_is_refused(bench: Bench) -> None:
    staged = bench.stage("t1", "1")
    result = bench.write(staged, {"1": [1, 2]})
    with pytest.raises(StageRejectedError, match="hold 2 rows, the job wrote 3"):
        bench.commit(staged, replace(result, rows=3))
    longer = replace(result.files[0], bytes=result.files[0].bytes + 1)
    with pytest.raises(StageRejectedError, match="bytes, not"):
        bench.commit(staged, replace(result, files=(longer,)))
    stage = staged.begin()
    for path in (
        "file:///elsewhere/x.parquet",
        f"{stage}/../t0/data/x.parquet",
        f"{stage}/data/../../t0/x.parquet",
        f"{stage}/..",
    ):
        with pytest.raises(StageRejectedError, match="outside its stage"):
            bench.commit(staged, replace(result, files=(replace(result.files[0], path=path),)))
    with pytest.raises(StageRejectedError, match="of token t2, not of t1"):
        bench.commit(staged, replace(result, token="t2"))


def test_appended_columns_are_null_in_old_rows(bench: Bench) -> None:
    bench.refresh({"1": [1]}, "1")
    staged = bench.stage("t2", "2")
    wider = (*COLUMNS, Column("text", "string", comment="what it says"))
    bench.commit(staged, bench.write(staged, {"2": [2]}, wider))
    rows = sorted(bench.table.sample(10), key=lambda row: row["ds"])
    assert [row["text"] for row in rows] == [None, "2!"]
    assert "`text` string" in bench.table.read().schema


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (COLUMNS[:1], "no longer returns column 'n'"),
        ((COLUMNS[0], Column("m", "bigint")), "was n bigint, but the query returns m bigint"),
        ((COLUMNS[0], Column("n", "string")), "was n bigint, but the query returns n string"),
        (COLUMNS[::-1], "was ds string, but the query returns n bigint"),
    ],
    ids=["dropped", "renamed", "retyped", "reordered"],
)
def test_other_changes_of_columns_are_refused(bench: Bench, columns: tuple[Column, ...], message: str) -> None:
    bench.refresh({"1": [1]}, "1")
    staged = bench.stage("t2", "1")
    result = bench.write(staged, {"1": [2]})
    if bench.hive_format and columns == COLUMNS[::-1]:
        return  # partition keys come last in a Hive table, wherever the query has them
    with pytest.raises(SchemaEvolutionError, match=message) as refused:
        bench.commit(staged, replace(result, columns=columns))
    assert bench.rows() == {"1": [1]}
    layout = bench.table.layout()
    assert layout is not None
    with pytest.raises(SchemaEvolutionError) as foreseen:  # by the job, before it writes anything
        layout.evolved(columns)
    assert str(foreseen.value) == str(refused.value)


def test_the_layout_is_that_of_the_last_commit(bench: Bench) -> None:
    assert bench.table.layout() is None, "any query fits"
    bench.refresh({"1": [1]}, "1")
    layout = bench.table.layout()
    assert layout is not None
    assert layout.partition_keys == bench.partition_keys
    assert {(column.name, column.type) for column in layout.columns} == {("ds", "string"), ("n", "bigint")}
    layout.evolved(COLUMNS)


def test_other_partition_keys_are_refused(bench: Bench) -> None:
    bench.refresh({"1": [1]}, "1")
    keys = ", ".join(bench.partition_keys)
    bench.partition_keys = ()
    with pytest.raises(StageRejectedError, match=re.escape(f"is partitioned by ({keys}), its definition now by ()")):
        bench.refresh({"1": [2]})


@pytest.mark.needs("files")
def test_reading_names_exactly_the_files_of_the_current_version(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"2": [20]}, "2")
    content = bench.table.read()
    assert content.snapshot == bench.table.versions()[-1].snapshot
    assert len(content.files) == 2
    assert sorted(content.schema.split(", ")) == ["`ds` string", "`n` bigint"]


def test_a_version_says_which_partitions_it_replaced(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    assert [version.partitions for version in bench.table.versions()][-1:] == [WHOLE_TABLE]
    bench.refresh({"2": [20]}, "2", "3")
    current = bench.table.current()
    assert current is not None
    assert current.partitions == PartitionSet.of([{"ds": "2"}, {"ds": "3"}])
    many = [f"{number:0100}" for number in range(50)]
    bench.refresh({"2": [200]}, "2", *many)
    current = bench.table.current()
    assert current is not None
    assert current.partitions is None, "too many for the metadata of a table"


@pytest.mark.needs("files")
def test_what_changed_between_two_versions_can_be_told(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2], "3": [3]})
    before = bench.table.read().state
    assert bench.table.read().state == before
    bench.refresh({"2": [20], "4": [4]}, "2", "3", "4")
    after = bench.table.read().state
    assert before is not None
    assert after is not None
    assert before.version != after.version
    assert (before.identity, before.location, before.schema) == (after.identity, after.location, after.schema)
    old, new = ({name.partition("/")[0]: told for name, told in (state.partitions or {}).items()} for state in (before, after))
    assert (set(old), set(new)) == ({"ds=1", "ds=2", "ds=3"}, {"ds=1", "ds=2", "ds=4"})
    assert (old["ds=1"] == new["ds=1"], old["ds=2"] == new["ds=2"]) == (True, False)


@pytest.mark.needs("files")
def test_an_unpartitioned_table_changes_as_a_whole(bench: Bench) -> None:
    bench.partition_keys = ()
    bench.refresh({"1": [1]})
    before = bench.table.read().state
    bench.refresh({"1": [2]})
    after = bench.table.read().state
    assert before is not None
    assert after is not None
    assert list(before.partitions or ()) == list(after.partitions or ()) == [""]
    assert before.partitions != after.partitions


def test_rows_are_counted_by_partition(bench: Bench) -> None:
    assert bench.table.count(WHOLE_TABLE) is None
    bench.refresh({"1": [1], "2": [2, 3], "3": [4, 5, 6]})
    bench.refresh({}, "3")
    bench.refresh({"2": [7, 8, 9]}, "2")
    assert bench.table.count(WHOLE_TABLE) == RowCounts(replaced=4, held=1, total=4, partitions=2)
    asked = PartitionSet.of([{"ds": "2"}, {"ds": "3"}, {"ds": "9"}])
    assert bench.table.count(asked) == RowCounts(replaced=3, held=1, total=4, partitions=2)


def test_rows_of_an_unpartitioned_table_are_counted(bench: Bench) -> None:
    bench.partition_keys = ()
    bench.refresh({"a": [1], "b": [2, 3]})
    assert bench.table.count(WHOLE_TABLE) == RowCounts(replaced=3, held=1, total=3, partitions=1)


def test_a_planned_value_is_spelled_as_its_type_spells_it(bench: Bench) -> None:
    """Or the rows of the partition that was meant would stay as they are."""
    bench.columns = (Column("ds", "int"), COLUMNS[1])
    staged = bench.stage("t1", "03")
    with pytest.raises(StageRejectedError, match="The plan names ds=03; for the types of the partition keys that is ds=3"):
        bench.commit(staged, bench.write(staged, {}))


def test_rows_that_complete_a_version_land_on_it_and_on_later_ones(bench: Bench) -> None:
    first = bench.refresh({"1": [1]}, at=NOON)
    planned = bench.stage("planned", "2")
    request = replace(bench.request(bench.write(planned, {"2": [2]})), base=Base(first.token, first.data_timestamp))
    bench.refresh({"3": [3]}, "3", at=NOON + timedelta(hours=1))
    assert planned.commit(request, lambda: None).number == 3
    assert bench.rows() == {"1": [1], "2": [2], "3": [3]}


def test_rows_that_complete_a_version_that_the_table_does_not_have_are_refused(bench: Bench) -> None:
    """Such as one that was taken back, or that was of a table of the same name."""
    bench.refresh({"1": [1]}, at=NOON)
    planned = bench.stage("planned", "2")
    result = bench.write(planned, {"2": [2]})
    with pytest.raises(CommitRejectedError, match="after this refresh was planned"):
        planned.commit(replace(bench.request(result), base=Base("gone", NOON)), lambda: None)
    assert bench.rows() == {"1": [1]}
    assert planned.outcome() is None
