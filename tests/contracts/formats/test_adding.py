"""Batches of a stream: each adds its rows once, to what the batch before left and to nothing else."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import StreamPosition, Version
from airflow_dynamic_tables.exceptions import CommitRejectedError, SchemaEvolutionError, StageRejectedError, UnsupportedError
from tests.support.benches.staging import COLUMNS, Bench

adding = pytest.mark.parametrize(
    "bench", ["iceberg/sqlite", pytest.param("iceberg/postgres", marks=pytest.mark.postgres)], indirect=True
)


def at(batch: int, stream: str = "s") -> StreamPosition:
    return StreamPosition(stream, batch, f"digest {batch}")


def add(
    bench: Bench, batch: int, rows: dict[str, list[int]], follows: int | None = None, columns: tuple[Column, ...] | None = None
) -> Version:
    """The commit of a batch; the first of a stream replaces the table."""
    staged = bench.stage(str(uuid4()))
    result = bench.write(staged, rows, columns)
    partitions = PartitionSet.of(result.partitions) if follows is not None and bench.partition_keys else WHOLE_TABLE
    after = at(follows) if follows is not None else None
    return staged.commit(replace(bench.request(result), partitions=partitions, position=at(batch), follows=after), lambda: None)


def of_others(bench: Bench) -> Table:
    """The table as another engine has it."""
    assert isinstance(bench.store, IcebergStore)
    return bench.store.tables.load_table((bench.path.database, bench.path.name))


@adding
def test_the_first_batch_replaces_and_the_next_ones_add(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    assert bench.table.position() is None
    add(bench, 3, {"1": [10], "2": [20]})
    version = add(bench, 4, {"2": [21], "3": [30]}, follows=3)
    assert bench.rows() == {"1": [10], "2": [20, 21], "3": [30]}
    assert (version.number, bench.table.position()) == (3, at(4))
    assert version.partitions == PartitionSet.of([{"ds": "2"}, {"ds": "3"}])
    assert [sorted(row["n"] for row in bench.table.sample(9, number)) for number in (1, 2)] == [[1], [10, 20]]


@adding
def test_an_unpartitioned_table_gets_rows(bench: Bench) -> None:
    bench.partition_keys = ()
    add(bench, 0, {"1": [1]})
    assert add(bench, 1, {"1": [2]}, follows=0).partitions == WHOLE_TABLE
    assert bench.rows() == {"1": [1, 2]}


@adding
def test_a_batch_is_added_once(bench: Bench) -> None:
    """Also when somebody writes it once more under another token, as after a death between commit and answer."""
    add(bench, 0, {"1": [1]})
    add(bench, 1, {"1": [2]}, follows=0)
    with pytest.raises(CommitRejectedError, match="the batch is there already"):
        add(bench, 1, {"1": [2]}, follows=0)
    assert bench.rows() == {"1": [1, 2]}


@adding
def test_of_two_that_add_the_same_batch_one_does(bench: Bench) -> None:
    add(bench, 0, {"1": [1]})
    both = Barrier(2)
    landed: list[Version] = []

    def race() -> None:
        staged = bench.stage(str(uuid4()))
        request = replace(bench.request(bench.write(staged, {"1": [2]})), position=at(1), follows=at(0))
        both.wait()
        try:
            landed.append(staged.commit(request, lambda: None))
        except CommitRejectedError:
            return

    racers = [Thread(target=race) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(landed) == 1
    assert bench.rows() == {"1": [1, 2]}


@pytest.mark.sampled
@adding
@pytest.mark.parametrize("how", ["refresh", "partition", "restore", "append", "delete", "roll back", "property"])
def test_nothing_is_added_to_what_others_made_of_the_table(bench: Bench, how: str) -> None:
    add(bench, 0, {"1": [1]})
    add(bench, 1, {"1": [2]}, follows=0)
    table = of_others(bench)
    match how:
        case "refresh":
            bench.refresh({"1": [7]})
        case "partition":
            bench.refresh({"1": [7]}, "1")
        case "restore":
            bench.stage(str(uuid4())).restore(1, lambda: None)
        case "append":
            table.append(table.scan().to_arrow())
        case "delete":
            table.delete("n = 1")
        case "roll back":
            with table.manage_snapshots() as manage:
                manage.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
        case "property":
            with table.transaction() as changes:
                changes.set_properties({"dynamic-tables.stream": "[1]"})
    before = bench.rows()
    assert bench.table.position() is None
    with pytest.raises(CommitRejectedError, match="another engine changed its rows"):
        add(bench, 2, {"1": [3]}, follows=1)
    assert bench.rows() == before


@adding
def test_a_fence_keeps_the_position(bench: Bench) -> None:
    add(bench, 0, {"1": [1]})
    bench.stage("dead").fence()
    assert bench.table.position() == at(0)
    add(bench, 1, {"1": [2]}, follows=0)
    assert bench.rows() == {"1": [1, 2]}


@adding
def test_a_batch_keeps_to_the_rules_of_every_commit(bench: Bench) -> None:
    add(bench, 0, {"1": [1]})
    with pytest.raises(SchemaEvolutionError):
        add(bench, 1, {"1": [2]}, follows=0, columns=COLUMNS[:1])
    wider = (*COLUMNS, Column("more", "string"))
    add(bench, 1, {"1": [2]}, follows=0, columns=wider)
    staged = bench.stage(str(uuid4()))
    result = replace(bench.write(staged, {"1": [3]}, wider), rows=2)
    with pytest.raises(StageRejectedError, match="hold 1 rows"):
        staged.commit(replace(bench.request(result), position=at(2), follows=at(1)), lambda: None)
    assert bench.rows() == {"1": [1, 2]}


@pytest.mark.sampled
@adding
def test_many_batches_have_few_manifests(bench: Bench) -> None:
    add(bench, 0, {"1": [0]})
    for batch in range(1, 120):
        add(bench, batch, {"1": [batch]}, follows=batch - 1)
    assert bench.rows() == {"1": list(range(120))}
    snapshot = of_others(bench).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(of_others(bench).io)) < 100


def test_a_format_that_cannot_add_refuses(bench: Bench) -> None:
    if bench.table.can_add:
        return
    staged = bench.stage("t")
    result = bench.write(staged, {"1": [1]})
    with pytest.raises(UnsupportedError, match="use format iceberg"):
        staged.commit(replace(bench.request(result), position=at(0)), lambda: None)
    assert bench.table.position() is None
