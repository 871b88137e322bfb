"""What others do to a Hive table between two refreshes, or in the middle of one: nothing is lost, and nothing told wrong."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, StageRejectedError
from airflow_dynamic_tables.formats.base import LakeTable
from tests.support.benches.staging import NOON, Bench
from tests.support.metastore import HiveMetastore

DAY = timedelta(days=1)


def load(metastore: Metastore, bench: Bench) -> Table:
    return metastore.call("get_table", bench.path.database, bench.path.name)


def write_back(metastore: Metastore, table: Table, name: str | None = None) -> None:
    """What ALTER TABLE and ANALYZE of other engines end with: the whole table as it was read, and nothing compared."""
    metastore.call("alter_table", table.dbName, name or table.tableName, table)


def tidy_up(bench: Bench, folder: Path, days: int = 2) -> int:
    """The maintenance of some day to come, when everything that was written by now is old."""
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    return bench.table.delete_orphans(datetime.now(UTC) + days * DAY, list).files


def beside(bench: Bench, name: str) -> Bench:
    """Another table of the same database."""
    path = ObjectPath(bench.path.database, name)
    return Bench(bench.store, path, bench.partition_keys, hive_format="parquet")


def renamed(metastore: Metastore, bench: Bench, name: str) -> Bench:
    table = load(metastore, bench)
    table.tableName = name
    write_back(metastore, table, bench.path.name)
    bench.is_registered = False
    return beside(bench, name)


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_a_renamed_table_keeps_its_rows(hive: Bench, metastore: Metastore, tmp_path: Path, keys: tuple[str, ...]) -> None:
    hive.partition_keys = keys
    hive.refresh({"1": [1], "2": [2]})
    old = renamed(metastore, hive, "revenue_old")
    hive.refresh({"1": [10]})
    hive.refresh({"1": [100]})
    tidy_up(hive, tmp_path)
    tidy_up(hive, tmp_path)
    assert old.rows() == {"1": [1], "2": [2]}
    assert hive.rows() == {"1": [100]}


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_tables_of_the_first_release_share_a_folder(
    hive: Bench, metastore: Metastore, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    """It gave every table the folder of its name, and so the next one of the name that of the one that was renamed."""
    hive.partition_keys = keys
    hive.stage("registered")
    in_folder_of_name(metastore, hive, tmp_path)
    hive.refresh({"1": [1], "2": [2]})
    old = renamed(metastore, hive, "revenue_old")
    hive.stage("registered")
    in_folder_of_name(metastore, hive, tmp_path)
    hive.refresh({"1": [10]})
    for _ in range(3):
        assert tidy_up(hive, tmp_path) == 0
    assert old.rows() == {"1": [1], "2": [2]}
    assert hive.rows() == {"1": [10]}


def in_folder_of_name(metastore: Metastore, bench: Bench, folder: Path) -> None:
    table = load(metastore, bench)
    table.sd.location = f"file://{folder}/shared"
    table.parameters.pop("dynamic-tables.id", None)
    write_back(metastore, table)


def test_nothing_is_deleted_where_another_installation_has_left_its_mark(hive: Bench, tmp_path: Path) -> None:
    hive.refresh({"1": [1]})
    hive.refresh({"1": [10]})
    own = next(tmp_path.rglob("_tables"))
    mark = own / "of-another-metastore"
    mark.write_text("sales.revenue")
    assert tidy_up(hive, tmp_path) == 0
    mark.unlink()
    assert tidy_up(hive, tmp_path) > 0
    assert hive.rows() == {"1": [10]}


def test_others_have_a_day_to_leave_their_mark(hive: Bench, tmp_path: Path) -> None:
    hive.refresh({"1": [1]})
    hive.refresh({"1": [10]})
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    for mark in next(tmp_path.rglob("_tables")).iterdir():
        mark.unlink()
    assert hive.table.delete_orphans(datetime.now(UTC) - DAY, list).files == 0
    assert tidy_up(hive, tmp_path) > 0


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_a_table_dropped_while_it_is_refreshed_does_not_come_back(
    hive: Bench, metastore: Metastore, keys: tuple[str, ...]
) -> None:
    hive.partition_keys = keys
    staged = hive.stage("late")
    result = hive.write(staged, {"1": [1]})
    metastore.call("drop_table", hive.path.database, hive.path.name, False)
    with pytest.raises(CommitRejectedError, match="was dropped or renamed while it was refreshed"):
        hive.commit(staged, result)
    assert hive.path.name not in metastore.call("get_all_tables", hive.path.database)


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_the_first_commit_can_be_fenced_off(hive: Bench, keys: tuple[str, ...]) -> None:
    hive.partition_keys = keys
    staged = hive.stage("asleep")
    result = hive.write(staged, {"1": [1]})
    is_fenced: list[bool] = []

    def given_up() -> None:
        sweeper = hive.stage("asleep")
        if sweeper.outcome() is None and is_fenced:
            raise CommitRejectedError  # as the ledger says it, too
        sweeper.fence()
        is_fenced.append(True)

    with pytest.raises(CommitRejectedError):
        hive.commit(staged, result, given_up)
    assert hive.table.versions() == []


def test_a_commit_that_another_engine_undoes(hive: Bench, metastore: Metastore, tmp_path: Path) -> None:
    hive.partition_keys = ()
    hive.refresh({"1": [1]}, at=NOON)
    read = load(metastore, hive)
    undone = hive.refresh({"2": [2]}, at=NOON + 5 * DAY)
    lost = sorted(path for path in tmp_path.rglob("*.parquet") if undone.token in str(path))
    write_back(metastore, read)
    assert hive.rows() == {"1": [1]}
    tidy_up(hive, tmp_path)
    assert all(path.exists() for path in lost), "the rows of the version that was undone"
    with pytest.raises(StageRejectedError, match=r"Version 2 of .* was undone by another engine"):
        hive.refresh({"3": [3]}, at=NOON + 3 * DAY)
    version = hive.refresh({"6": [6]}, at=NOON + 5 * DAY)
    assert (version.number, version.data_timestamp) == (3, NOON + 5 * DAY)
    assert hive.rows() == {"6": [6]}
    tidy_up(hive, tmp_path)
    assert not any(path.exists() for path in lost)


def test_numbers_go_on_when_another_engine_puts_back_what_a_commit_recorded(hive: Bench, metastore: Metastore) -> None:
    hive.refresh({"1": [1]}, at=NOON)
    read = load(metastore, hive)
    hive.refresh({"2": [2]}, "2", at=NOON + DAY)
    write_back(metastore, read)
    version = hive.refresh({"3": [3]}, "3", at=NOON)
    assert (version.number, version.data_timestamp) == (3, NOON + DAY)
    assert hive.rows() == {"1": [1], "2": [2], "3": [3]}


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_a_commit_whose_parameters_are_gone_has_landed(hive: Bench, metastore: Metastore, keys: tuple[str, ...]) -> None:
    hive.partition_keys = keys
    hive.refresh({"0": [0]})
    staged = hive.stage("landed")
    hive.commit(staged, hive.write(staged, {"1": [1]}))
    table = load(metastore, hive)
    without = {key: text for key, text in table.parameters.items() if not key.startswith("dynamic-tables.version.")}
    table.parameters = without
    write_back(metastore, table)
    if keys:
        one = metastore.call("get_partition", *(hive.path.database, hive.path.name), ["1"])
        one.parameters = {}
        metastore.alter_partitions(hive.path.database, hive.path.name, [one])
    version = staged.outcome()
    assert version is not None
    assert version.number == 2
    with pytest.raises(ConflictError, match="reads the files of stage landed"):
        staged.abort()
    assert Path(staged.begin().removeprefix("file://"), "data").exists()


class TornMetastore(Metastore):
    """Answers once with the locations of before a commit and the parameters of after it."""

    def __init__(self, uri: str, method: str, commit: Callable[[], object]) -> None:
        super().__init__(uri)
        self._method, self._commit = method, commit
        self._is_torn = False

    def call(self, method: str, *arguments: Any) -> Any:
        answer = super().call(method, *arguments)
        if method != self._method or self._is_torn:
            return answer
        self._is_torn = True
        self._commit()
        return _mixed(answer, super().call(method, *arguments))


def _mixed(before: Any, after: Any) -> Any:
    if not isinstance(before, list):
        mixed = copy.deepcopy(before)
        mixed.parameters = after.parameters
        return mixed
    parameters = {tuple(one.values): one for one in after}
    return [_mixed(one, parameters[tuple(one.values)]) for one in before if tuple(one.values) in parameters]


@pytest.mark.parametrize(("keys", "method"), [((), "get_table"), (("ds",), "get_partitions")])
def test_version_rows_and_files_are_of_one_commit(
    hive: Bench, hive_metastore: HiveMetastore, keys: tuple[str, ...], method: str
) -> None:
    hive.partition_keys = keys
    hive.refresh({"1": [1], "2": [2]})

    def look(commit: Callable[[], object], see: Callable[[LakeTable], Any]) -> Any:
        with closing(TornMetastore(hive_metastore.uri, method, commit)) as torn:
            return see(Bench(MetastoreStore("lake", torn), hive.path, keys, hive_format="parquet").table)

    content = look(lambda: hive.refresh({"1": [10, 11], "2": [20]}), lambda table: table.read())
    assert all(f"/{content.snapshot}/" in file for file in content.files)
    counts = look(lambda: hive.refresh({"1": [1, 2, 3], "2": [4, 5, 6]}), lambda table: table.count(WHOLE_TABLE))
    assert counts.total == 6


def test_a_commit_under_way_is_told_by_its_files(hive: Bench, hive_metastore: HiveMetastore) -> None:
    """Between its ``alter_partitions`` and its end, the table itself does not change."""
    first = hive.refresh({"1": [1], "2": [2]})
    staged = hive.stage("under-way")
    result = hive.write(staged, {"1": [10], "3": [30]})
    with closing(UnfinishedMetastore(hive_metastore.uri)) as stopped:
        other = Bench(MetastoreStore("lake", stopped), hive.path, hive_format="parquet", is_registered=True)
        with pytest.raises(KeyboardInterrupt):
            other.commit(other.stage("under-way"), result)
        stopped.answers_torn = True
        content = other.table.read()
    assert content.snapshot == "under-way"
    assert first.snapshot != content.snapshot
    assert all("/under-way/" in file for file in content.files)


class UnfinishedMetastore(Metastore):
    """Connections of a committer that dies right after its ``alter_partitions``; then gives one torn answer."""

    before: list[Any] | None = None
    answers_torn = False

    def alter_partitions(self, database: str, table: str, partitions: list[Any]) -> None:
        self.before = super().call("get_partitions", database, table, -1)
        super().alter_partitions(database, table, partitions)
        raise KeyboardInterrupt

    def call(self, method: str, *arguments: Any) -> Any:
        answer = super().call(method, *arguments)
        if method == "get_partitions" and self.answers_torn:
            self.answers_torn = False
            return _mixed(self.before, answer)
        return answer
