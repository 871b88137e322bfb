"""Another engine alters partitions beside a commit, as ANALYZE TABLE ... PARTITION does: what it undoes is noticed and kept."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import Partition

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.partitions import PartitionSet
from tests.support.benches.hive import uri_of
from tests.support.benches.staging import Bench

DAYS = tuple(str(day) for day in range(1, 4))


def read(metastore: Metastore, bench: Bench) -> list[Partition]:
    partitions: list[Partition] = metastore.call("get_partitions", bench.path.database, bench.path.name, -1)
    return partitions


def alter(metastore: Metastore, bench: Bench, partitions: list[Partition]) -> None:
    metastore.call("alter_partitions", bench.path.database, bench.path.name, partitions)


def undone(bench: Bench) -> dict[int, PartitionSet]:
    return {one.version.number: one.partitions for one in bench.table.undone()}


def days(*names: str) -> PartitionSet:
    return PartitionSet.of({"ds": name} for name in names)


def tidy_up(bench: Bench, folder: Path) -> None:
    """The maintenance of some day to come, when everything that was written by now is old."""
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    bench.table.delete_orphans(datetime.now(UTC) + timedelta(days=2), list)


def files_of(folder: Path, token: str) -> list[Path]:
    return [path for path in folder.rglob("*.parquet") if token in str(path)]


@pytest.mark.sampled
@pytest.mark.parametrize("planned", [("1", "2"), ()], ids=["some days", "the whole table"])
@pytest.mark.parametrize("keeps_parameters", [True, False])
def test_partitions_that_are_put_back(
    hive: Bench, metastore: Metastore, tmp_path: Path, planned: tuple[str, ...], keeps_parameters: bool
) -> None:
    hive.refresh({"1": [1], "2": [2]})
    before = read(metastore, hive)
    assert undone(hive) == {}
    second = hive.refresh({"1": [10], "2": [20]}, *planned)
    if not keeps_parameters:
        for one in before:
            one.parameters = {"numRows": "1"}
    alter(metastore, hive, before[:1])
    assert undone(hive) == {2: days("1")}
    tidy_up(hive, tmp_path)
    tidy_up(hive, tmp_path)
    assert len(files_of(tmp_path, second.token)) == 2
    assert hive.rows() == {"1": [1], "2": [20]}

    hive.refresh({"1": [100]}, "1")
    assert undone(hive) == {}
    assert hive.rows() == {"1": [100], "2": [20]}
    tidy_up(hive, tmp_path)
    assert len(files_of(tmp_path, second.token)) == 1


def test_one_alteration_undoes_several_versions(hive: Bench, metastore: Metastore) -> None:
    hive.refresh({day: [1] for day in DAYS})
    before = read(metastore, hive)
    for day in DAYS:
        hive.refresh({day: [2]}, day)
    hive.refresh({}, "3")
    alter(metastore, hive, before[:2])
    assert undone(hive) == {2: days("1"), 3: days("2")}
    metastore.call("add_partition", before[2])
    assert undone(hive) == {2: days("1"), 3: days("2"), 5: days("3")}


def test_a_version_of_so_many_partitions_that_it_does_not_name_them(hive: Bench, metastore: Metastore) -> None:
    many = [f"{day:04}" for day in range(300)]
    hive.refresh({day: [1] for day in many[:3]})
    before = read(metastore, hive)
    version = hive.refresh({day: [2] for day in many[:3]}, *many)
    assert version.partitions is None
    alter(metastore, hive, before[:1])
    assert undone(hive) == {2: days("0000")}


def test_the_first_version_of_a_partition_is_undone(hive: Bench, metastore: Metastore, tmp_path: Path) -> None:
    """It was read in the moment in which the commit had added it, and not filled it yet."""
    hive.refresh({"1": [1]})
    version = hive.refresh({"2": [2]}, "2")
    (second,) = (one for one in read(metastore, hive) if one.values == ["2"])
    second.sd.location = second.sd.location.partition("/data")[0] + "/empty"
    second.parameters = {}
    alter(metastore, hive, [second])
    assert undone(hive) == {2: days("2")}
    tidy_up(hive, tmp_path)
    assert undone(hive) == {2: days("2")}
    assert files_of(tmp_path, version.token)
    hive.refresh({"2": [20]}, "2")
    assert undone(hive) == {}
    assert hive.rows() == {"1": [1], "2": [20]}


def test_partitions_that_lead_elsewhere_and_those_that_are_gone(
    hive: Bench, metastore: Metastore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hive.refresh({day: [1] for day in DAYS})
    first, second, _ = read(metastore, hive)
    foreign = copy.deepcopy(second)
    foreign.values = ["9"]
    foreign.parameters = {}
    foreign.sd.location = f"file://{tmp_path}/elsewhere/9"
    Path(tmp_path, "elsewhere", "9").mkdir(parents=True)
    metastore.call("add_partition", foreign)
    assert undone(hive) == {}, "what others add is theirs, until a refresh replaces it"
    first.sd.location = f"file://{tmp_path}/elsewhere/1"
    alter(metastore, hive, [first])
    assert undone(hive) == {1: days("1")}
    metastore.call("drop_partition", hive.path.database, hive.path.name, ["3"], False)
    assert undone(hive) == {1: days("1")}, "others may drop a partition"
    tidy_up(hive, tmp_path)
    said = f"Partitions of version 1 of {hive.path} were dropped by another engine, and stay so until they are refreshed: ds=3"
    assert said in caplog.text


def test_what_is_no_undoing(hive: Bench, metastore: Metastore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Parameters of partitions, also of those that have not changed for more versions than are kept, and of the table."""
    hive.refresh({day: [1] for day in DAYS})
    for number in range(25):
        hive.refresh({"1": [number]}, "1")
    partitions = read(metastore, hive)
    for one in partitions:
        one.parameters = {"spark.sql.statistics.numRows": "1"}
    alter(metastore, hive, partitions)
    assert undone(hive) == {}
    tidy_up(hive, tmp_path)
    assert "dropped by another engine" not in caplog.text
    assert hive.rows() == {"1": [24], "2": [1], "3": [1]}
    table = metastore.call("get_table", hive.path.database, hive.path.name)
    table.parameters = {name: text for name, text in table.parameters.items() if not name.startswith("dynamic-tables.version")}
    metastore.call("alter_table", table.dbName, table.tableName, table)
    assert undone(hive) == {}


def test_a_look_while_a_commit_is_under_way(hive: Bench) -> None:
    hive.refresh({"1": [1], "2": [2]})
    seen = []
    with closing(LookingMetastore(uri_of(hive), lambda: seen.append(undone(hive)))) as looking:
        other = Bench(MetastoreStore("lake", looking), hive.path, hive_format="parquet", is_registered=True)
        staged = other.stage("under-way")
        other.commit(staged, other.write(staged, {"1": [10], "3": [30]}))
    assert len(seen) > 6
    assert not any(seen)


class LookingMetastore(Metastore):
    """After every call somebody looks."""

    def __init__(self, uri: str, look: Callable[[], object]) -> None:
        super().__init__(uri)
        self._look = look

    def call(self, method: str, *arguments: Any) -> Any:
        answer = super().call(method, *arguments)
        self._look()
        return answer
