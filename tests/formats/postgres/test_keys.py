"""Partition keys of every type: replaced, counted and told apart by their values, however these are spelled."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import RowCounts
from tests.support.benches.jdbc import JdbcBench, table_of, write_rows

pytestmark = pytest.mark.postgres

KEYS = [
    ("text", "string", "it's", 'say "x" \\ %s'),
    ("character(3)", "string", "ab", "c"),
    ("varchar(9)", "string", "ab ", "ab"),
    ("double precision", "double", "1.5", "1.0E10"),
    ("double precision", "double", "NaN", "-0.0"),
    ("real", "float", "0.1", "2.0"),
    ("numeric(10,2)", "decimal(10,2)", "1.50", "2.00"),
    ("integer", "int", "3", "-4"),
    ("date", "date", "2024-02-29", "2024-03-01"),
    ("timestamp", "timestamp", "2024-02-29 12:00:00", "2024-02-29 12:00:00.5"),
    ("boolean", "boolean", "true", "false"),
    ("uuid", "string", "0b0b0b0b-0000-4000-8000-000000000001", "0b0b0b0b-0000-4000-8000-000000000002"),
    ('text COLLATE "C"', "string", "ä", "a"),
]


def refresh(
    bench: JdbcBench, token: str, kind: tuple[str, str], rows: list[tuple[str | None, int]], *planned: str | None
) -> Version:
    made, spark = kind
    if planned:
        bench.planned[token] = PartitionSet.of({"k": value} for value in planned)
    staged = bench.stage(token)
    written = write_rows(bench.url, staged, (Column("k", made), Column("n", "bigint")), rows)
    columns = (Column("k", spark), Column("n", "bigint"))
    return bench.commit(staged, RefreshResult(written.token, "job", len(rows), (), columns))


def numbers(bench: JdbcBench) -> list[int]:
    return sorted(row["n"] for row in bench.table.sample(100))


@pytest.mark.sampled
@pytest.mark.parametrize(("made", "sparks", "one", "other"), KEYS)
def test_exactly_the_planned_partitions_are_replaced_and_counted(
    bench: JdbcBench, made: str, sparks: str, one: str, other: str
) -> None:
    bench.partition_keys = ("k",)
    kind = (made, sparks)
    refresh(bench, "t1", kind, [(one, 1), (other, 2), (None, 3)])
    asked = PartitionSet.of([{"k": one}, {"k": None}])
    assert bench.table.count(asked) == RowCounts(replaced=2, held=2, total=3, partitions=3)
    refresh(bench, "t2", kind, [(one, 10), (one, 11)], one)
    assert numbers(bench) == [2, 3, 10, 11]
    refresh(bench, "t3", kind, [(None, 30)], NULL_PARTITION)
    assert numbers(bench) == [2, 10, 11, 30]
    refresh(bench, "t4", kind, [], other, None)
    assert numbers(bench) == [10, 11]
    with pytest.raises(StageRejectedError, match="which was not planned"):
        refresh(bench, "t5", kind, [(other, 9)], one)
    assert numbers(bench) == [10, 11]
    assert bench.table.count(PartitionSet.of([{"k": other}])) == RowCounts(replaced=0, held=0, total=2, partitions=1)


@pytest.mark.parametrize(
    ("made", "sparks", "one", "asked"),
    [
        ("numeric(10,1)", "decimal(10,2)", "1.3", "1.25"),
        ("varchar(3)", "string", "abc", "abcd"),
        ("character(3)", "string", "abc", "abcd"),
        ("timestamp(0)", "timestamp", "2024-02-29 12:00:01", "2024-02-29 12:00:00.6"),
    ],
)
def test_a_value_that_a_type_cannot_hold_is_of_no_partition(
    bench: JdbcBench, made: str, sparks: str, one: str, asked: str
) -> None:
    bench.partition_keys = ("k",)
    refresh(bench, "t1", (made, sparks), [(one, 1)])
    assert bench.table.count(PartitionSet.of([{"k": asked}])) == RowCounts(replaced=0, held=0, total=1, partitions=1)
    refresh(bench, "t2", (made, sparks), [], asked)
    assert numbers(bench) == [1]


def test_a_partition_of_a_moment_is_not_replaced_by_a_time_of_no_zone(bench: JdbcBench) -> None:
    bench.partition_keys = ("k",)
    kind = ("timestamp with time zone", "timestamp")
    refresh(bench, "t1", kind, [("2024-02-29 12:00:00+00", 1), (None, 2)])
    with pytest.raises(StageRejectedError, match=r"^Partition key k is a moment, and 2024-02-29 13:00:00 is another one in"):
        refresh(bench, "t2", kind, [], "2024-02-29 13:00:00")
    refresh(bench, "t3", kind, [], None)
    assert numbers(bench) == [1]


@pytest.mark.parametrize("made", ["text", "varchar(40)", "character(40)"])
def test_a_text_that_stands_for_null_is_refused(bench: JdbcBench, made: str) -> None:
    bench.partition_keys = ("k",)
    with pytest.raises(StageRejectedError) as refused:
        refresh(bench, "t1", (made, "string"), [(NULL_PARTITION, 1)])
    assert str(refused.value) == (
        "A partition key has the text __HIVE_DEFAULT_PARTITION__, which stands for null; the query has to replace it."
    )


def test_a_value_that_is_none_of_the_column_is_refused(bench: JdbcBench) -> None:
    bench.partition_keys = ("k",)
    refresh(bench, "t1", ("integer", "int"), [("1", 1)])
    with pytest.raises(StageRejectedError, match="'x' is no int"):
        refresh(bench, "t2", ("integer", "int"), [], "x")


def test_a_stage_that_is_not_what_the_job_said_is_refused(bench: JdbcBench) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1, 2]})
    name = f"{table_of(bench)}__stage_t1"
    for wrong, message in (
        (replace(result, rows=3), "The staged files hold 2 rows, the job wrote 3."),
        (replace(result, columns=result.columns[:1]), f"The stage table {name} has the columns ds, n, not ds."),
        (replace(result, token="t2"), "The result is of token t2, not of t1."),
    ):
        with pytest.raises(StageRejectedError) as refused:
            bench.commit(staged, wrong)
        assert str(refused.value) == message
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"DROP TABLE {name}".encode())
    with pytest.raises(StageRejectedError) as refused:
        bench.commit(staged, result)
    assert str(refused.value) == f"The stage table {name} is missing or damaged; refresh again."


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("VIEW {table} AS SELECT 1 AS n", "a view"),
        ("MATERIALIZED VIEW {table} AS SELECT 1 AS n", "a materialized view"),
        ("SEQUENCE {table}", "a sequence"),
    ],
)
def test_what_is_no_table_is_not_replaced(bench: JdbcBench, made: str, kind: str) -> None:
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"CREATE {made.format(table=table_of(bench).quoted)}".encode())
    with pytest.raises(StageRejectedError) as refused:
        bench.refresh({"1": [1]})
    assert str(refused.value) == f"{table_of(bench)} is {kind} and no table; drop it, or choose another name for the table."


def test_a_table_of_nobody_is_not_replaced(bench: JdbcBench) -> None:
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"CREATE TABLE {table_of(bench).quoted} (ds text, n bigint)".encode())
    with pytest.raises(StageRejectedError) as refused:
        bench.refresh({"1": [1]})
    assert str(refused.value) == f"{table_of(bench)} is there already and of no refresh; choose another name for the table."
