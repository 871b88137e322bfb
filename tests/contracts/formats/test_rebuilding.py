"""A full refresh makes a table anew whose columns or partition keys changed: readers see the old one whole, or the new one."""

from __future__ import annotations

from threading import Event, Thread
from uuid import uuid4

import pytest

from airflow_dynamic_tables.clients.stores import IcebergStore, MetastoreStore
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.schema import Column, Rebuild
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CommitRejectedError, SchemaEvolutionError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.base import TableContent
from tests.support.benches.staging import COLUMNS, Bench

DS, N = COLUMNS
OTHERS = {
    "dropped": (DS,),
    "renamed": (DS, Column("m", "bigint")),
    "retyped": (DS, Column("n", "string")),
    "reordered": (N, DS),
}


def is_possible(bench: Bench, change: str) -> bool:
    """Whether a full refresh can make that change."""
    if bench.format == "delta":
        return change != "dropped" or not bench.partition_keys
    if not isinstance(bench.store, MetastoreStore):
        return True
    return not bench.partition_keys and (change in ("dropped", "renamed") or bench.store.metastore.lets_types_change())


ICEBERG = pytest.mark.parametrize(
    "bench", ["iceberg/sqlite", pytest.param("iceberg/postgres", marks=pytest.mark.postgres)], indirect=True
)


def shape(bench: Bench) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Partition keys, and names and types of columns."""
    layout = bench.table.layout()
    assert layout is not None
    return layout.partition_keys, [(column.name, column.type) for column in layout.columns]


def named(*columns: Column) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


def row(columns: tuple[Column, ...], value: int) -> dict[str, object]:
    """A row of day 1 as the bench writes it."""
    return {c.name: "1" if c.name == "ds" else value if c.type == "bigint" else f"{value}!" for c in columns}


def refuse_keys_alone(bench: Bench, *columns: Column) -> None:
    """Neither Spark nor Delta has tables of nothing but partition keys."""
    before = shape(bench)
    staged = bench.stage(str(uuid4()))
    with pytest.raises(UnsupportedError, match="needs a column that is no partition key"):
        bench.commit(staged, bench.write(staged, {}, columns), rebuild=Rebuild.EVERYTHING)
    assert shape(bench) == before
    assert bench.rows() == {"1": [1], "2": [2]}


@pytest.mark.parametrize("keys", [("ds",), ()], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("change", OTHERS)
def test_other_columns_come_with_their_rows(bench: Bench, change: str, keys: tuple[str, ...]) -> None:
    bench.partition_keys = keys
    columns = OTHERS[change]
    bench.refresh({"1": [1], "2": [2]})
    before = bench.table.read()
    seen: list[tuple[TableContent, dict[str, list[int]]]] = []

    if bench.hive_format and keys and change == "reordered":
        return  # partition keys come last in a Hive table, wherever the query has them
    if not is_possible(bench, change):
        if bench.format == "delta":
            refuse_keys_alone(bench, *columns)
            return
        with pytest.raises(SchemaEvolutionError, match="Drop the table"):  # before rows are computed
            bench.rebuild({"1": [7]}, *columns)
        assert bench.rows() == {"1": [1], "2": [2]}
        return
    version = bench.rebuild({"1": [7]}, *columns, before=lambda: seen.append((bench.table.read(), bench.rows())))
    assert seen == [(before, {"1": [1], "2": [2]})], "until the commit nothing of it shows"
    assert version.number == 2
    assert shape(bench) == (keys, named(*columns))
    assert bench.table.sample(10) == [row(columns, 7)]
    content = bench.table.read()
    assert content.schema == ", ".join(f"`{column.name}` {column.type}" for column in columns)
    assert len(content.files) == (1 if bench.has_files else 0)
    counts = bench.table.count(PartitionSet.of([{"ds": "1"}])) if keys else None
    assert counts is None or (counts.replaced, counts.total) == (1, 1)


@pytest.mark.parametrize("keys", [("n",), (), ("n", "ds")], ids=["other", "none", "more"])
def test_other_partition_keys_come_with_their_rows(bench: Bench, keys: tuple[str, ...]) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.partition_keys = keys
    if bench.hive_format:
        with pytest.raises(SchemaEvolutionError, match=r"partitioned by \(ds\).*in one step. Drop the table"):
            bench.rebuild({"1": [7]}, *COLUMNS)
        return
    if bench.format == "delta" and len(keys) == len(COLUMNS):
        refuse_keys_alone(bench, *COLUMNS)
        return
    bench.rebuild({"1": [7], "3": [30]}, *COLUMNS)
    assert shape(bench) == (keys, named(*COLUMNS))
    assert bench.rows() == {"1": [7], "3": [30]}
    if keys == ("n",):
        bench.planned["t3"] = PartitionSet.of([{"n": "7"}])
        staged = bench.stage("t3")
        bench.commit(staged, bench.write(staged, {}))
        assert bench.rows() == {"3": [30]}


def test_a_table_without_partition_keys_gets_some(bench: Bench) -> None:
    bench.partition_keys = ()
    bench.refresh({"1": [1], "2": [2]})
    bench.partition_keys = ("ds",)
    if bench.hive_format:
        with pytest.raises(SchemaEvolutionError, match=r"partitioned by \(\).*Drop the table"):
            bench.rebuild({"1": [7]}, *COLUMNS)
        return
    bench.rebuild({"1": [7], "2": [8]}, *COLUMNS)
    bench.refresh({"2": [9]}, "2")
    assert bench.rows() == {"1": [7], "2": [9]}


def renamed(bench: Bench) -> tuple[Column, ...]:
    """Columns that every bench can be given."""
    if bench.hive_format:
        bench.partition_keys = ()
    return OTHERS["renamed"]


def test_what_is_raised_before_publishing_leaves_the_old_table(bench: Bench) -> None:
    columns = renamed(bench)
    bench.refresh({"1": [1]})
    before = shape(bench)

    def refuse() -> None:
        raise CommitRejectedError("not yours any more")

    with pytest.raises(CommitRejectedError, match="not yours any more"):
        bench.rebuild({"1": [2]}, *columns, before=refuse)
    assert (shape(bench), bench.rows()) == (before, {"1": [1]})
    bench.refresh({"1": [3]})
    assert bench.rows() == {"1": [3]}


def test_a_fenced_rebuild_cannot_land(bench: Bench) -> None:
    columns = renamed(bench)
    bench.refresh({"1": [1]})
    before = shape(bench)
    staged = bench.stage("zombie")
    result = bench.write(staged, {"1": [2]}, columns)
    calls: list[int] = []

    def fenced_meanwhile() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise CommitRejectedError("somebody took the stage away")
        bench.table.stage("zombie").fence()

    with pytest.raises(CommitRejectedError):
        bench.commit(staged, result, fenced_meanwhile, rebuild=Rebuild.COLUMNS)
    assert bench.table.stage("zombie").outcome() is None
    assert (shape(bench), bench.rows()) == (before, {"1": [1]})


@pytest.mark.sampled
def test_a_rebuild_and_another_refresh_follow_each_other(bench: Bench) -> None:
    """Whoever publishes second sees what the first did: the rebuild replaces it, rows of the old columns are refused."""
    columns = renamed(bench)
    days = ("2",) if bench.partition_keys else ()
    bench.refresh({"1": [1]})
    late = bench.stage("late", *days)
    late_rows = bench.write(late, {"2": [2]})
    raced: list[Version] = []

    def somebody_commits() -> None:
        if not raced:
            raced.append(bench.refresh({"2": [20]}, *days))

    assert bench.rebuild({"1": [7]}, *columns, before=somebody_commits).number == 3
    assert bench.table.sample(10) == [row(columns, 7)]
    with pytest.raises(SchemaEvolutionError, match="was m bigint, but the query returns n bigint"):
        bench.commit(late, late_rows)
    assert bench.table.sample(10) == [row(columns, 7)]


@pytest.mark.sampled
def test_readers_see_rows_with_the_columns_that_are_theirs(bench: Bench) -> None:
    other = renamed(bench)
    bench.refresh({"1": [1]})
    seen: list[list[dict[str, object]]] = []
    is_over = Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.append(bench.table.sample(10))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        for value in range(2, 8):
            bench.rebuild({"1": [value]}, *(COLUMNS if value % 2 else other))
    finally:
        is_over.set()
        watcher.join()
    whole = [[row(COLUMNS if value % 2 else other, value)] for value in range(1, 8)]
    assert seen
    assert [rows for rows in seen if rows not in whole] == []


def test_committing_a_rebuild_again_is_the_same_version(bench: Bench) -> None:
    columns = renamed(bench)
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]}, columns)
    first = bench.commit(staged, result, rebuild=Rebuild.COLUMNS)
    assert bench.commit(staged, result, rebuild=Rebuild.COLUMNS) == first
    assert bench.table.stage("t2").outcome() == first


def test_a_refresh_of_some_partitions_rebuilds_nothing(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    staged = bench.stage("t2", "1")
    with pytest.raises(StageRejectedError, match="cannot change columns or partition keys"):
        bench.commit(staged, bench.write(staged, {"1": [2]}), rebuild=Rebuild.EVERYTHING)
    assert bench.rows() == {"1": [1]}


@ICEBERG
def test_every_version_is_read_with_the_columns_that_it_had(bench: Bench) -> None:
    """Columns come, change their types, go, and come back, by full refreshes and by appending."""
    text = (DS, Column("n", "string"))
    bench.refresh({"1": [1]})
    bench.rebuild({"1": [2]}, *text)
    bench.rebuild({"1": [3]}, DS)
    appended = bench.stage("t4", "1")
    bench.commit(appended, bench.write(appended, {"1": [4]}, COLUMNS))
    bench.partition_keys = ("n",)
    bench.rebuild({"1": [5]}, *COLUMNS[::-1])
    expected = [row(COLUMNS, 1), row(text, 2), row((DS,), 3), row(COLUMNS, 4), row(COLUMNS[::-1], 5)]
    assert [bench.table.sample(10, number) for number in (1, 2, 3, 4, 5)] == [[one] for one in expected]
    assert list(bench.table.sample(10)[0]) == ["n", "ds"]
    assert len(bench.table.read().files) == 1, "readable by the names of its columns"


@ICEBERG
def test_a_column_that_another_engine_dropped_comes_back_with_its_values(bench: Bench) -> None:
    """The query still returns it, and the files of other partitions still have it."""
    bench.refresh({"1": [1], "2": [2]})
    assert isinstance(bench.store, IcebergStore)
    table = bench.store.tables.load_table((bench.path.database, bench.path.name))
    with table.update_schema() as schema:
        schema.delete_column("n")
    bench.refresh({"1": [10]}, "1")
    assert bench.rows() == {"1": [10], "2": [2]}
    assert len(bench.table.read().files) == 2, "readable by the names of its columns"
    bench.rebuild({"1": [20]}, *COLUMNS[::-1])
    assert bench.table.sample(10) == [{"n": 20, "ds": "1"}]


@ICEBERG
def test_a_key_of_another_type_is_another_partition(bench: Bench) -> None:
    bench.partition_keys = ("n",)
    bench.refresh({"1": [1], "2": [2]})
    bench.rebuild({"1": [7]}, DS, Column("n", "string"))
    bench.planned["t3"] = PartitionSet.of([{"n": "7!"}])
    staged = bench.stage("t3")
    bench.commit(staged, bench.write(staged, {}, (DS, Column("n", "string"))))
    assert bench.table.sample(10) == []
    assert [one["n"] for one in bench.table.sample(10, 1)] == [1, 2]


@ICEBERG
def test_a_key_that_is_no_column_any_more_goes_with_its_versions(bench: Bench) -> None:
    """Other engines could not open the table while a spec names a column that there is not."""
    bench.refresh({"1": [1]})
    bench.partition_keys = ("n",)
    bench.rebuild({"1": [2]}, N)
    assert [version.number for version in bench.table.versions()] == [2]
    assert bench.table.sample(10) == [{"n": 2}]
    assert isinstance(bench.store, IcebergStore)
    table = bench.store.tables.load_table((bench.path.database, bench.path.name))
    specs = [[str(table.schema().find_column_name(field.source_id)) for field in spec.fields] for spec in table.specs().values()]
    assert specs == [[], ["n"]]
    bench.partition_keys = ("ds",)
    assert bench.rebuild({"1": [3]}, *COLUMNS).number == 3
    assert [len(bench.table.sample(10, number)) for number in (2, 3)] == [1, 1]
    with table.refresh().manage_snapshots() as snapshots:
        snapshots.create_tag(table.snapshots()[-1].snapshot_id, "audited")
    bench.rebuild({"1": [4]}, *COLUMNS)
    bench.partition_keys = ()
    with pytest.raises(SchemaEvolutionError, match="audited, a branch or tag, keeps one"):
        bench.rebuild({"1": [5]}, N)
    assert bench.rows() == {"1": [4]}


@ICEBERG
def test_a_version_of_other_columns_or_keys_is_not_restored(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.rebuild({"1": [2]}, DS, Column("n", "string"))
    bench.partition_keys = ()
    bench.rebuild({"1": [3]}, DS, Column("n", "string"))
    for number in (1, 2):
        with pytest.raises(SchemaEvolutionError, match=rf"show --version {number}\) but not restored: .* --full-refresh"):
            bench.stage(str(uuid4())).restore(number, lambda: None)
    bench.rebuild({"1": [4]}, DS, Column("n", "string"))
    bench.stage("back").restore(3, lambda: None)
    assert bench.table.sample(10) == [row((DS, Column("n", "string")), 3)]
    bench.partition_keys = ("ds",)
    bench.rebuild({"1": [5]}, *COLUMNS)
    bench.stage("far back").restore(1, lambda: None)
    assert bench.rows() == {"1": [1]}
    bench.refresh({"2": [2]}, "2")
    assert bench.rows() == {"1": [1], "2": [2]}


@ICEBERG
def test_a_version_comes_back_with_its_columns_and_keys(bench: Bench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.rebuild({"1": [3]}, DS, Column("n", "string"))
    bench.partition_keys = ()
    bench.rebuild({"1": [4]}, N, DS)
    seen: list[object] = []
    for number, keys, columns, value in ((2, ("ds",), (DS, Column("n", "string")), 3), (3, (), (N, DS), 4)):
        before = (shape(bench), bench.table.sample(10))
        restoring = bench.stage(str(uuid4()))
        version = restoring.restore(number, lambda: seen.append((shape(bench), bench.table.sample(10))), with_columns=True)
        assert seen.pop() == before, "until the commit nothing of it shows"
        assert shape(bench) == (keys, named(*columns))
        assert bench.table.sample(10) == [row(columns, value)]
        assert [one.number for one in bench.table.versions()][-1] == version.number
    bench.stage("first").restore(1, lambda: None, with_columns=True)
    assert bench.rows() == {"1": [1], "2": [2]}
    bench.partition_keys = ("ds",)
    bench.refresh({"2": [5]}, "2")
    assert bench.rows() == {"1": [1], "2": [5]}, "and refreshes go on"
    assert bench.table.sample(10, 3) == [row((N, DS), 4)], "what was taken back is kept, too"


@ICEBERG
def test_a_version_of_the_same_columns_comes_back_as_ever(bench: Bench) -> None:
    bench.refresh({"1": [1]})
    bench.refresh({"1": [2]}, "1")
    before = shape(bench)
    bench.stage("back").restore(1, lambda: None, with_columns=True)
    assert (shape(bench), bench.rows()) == (before, {"1": [1]})
