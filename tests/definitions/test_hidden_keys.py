"""Tables that are partitioned by what Iceberg computes of columns: what is declared, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import Cache, normalised, restored
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.printing import statement_of
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.table_problems import key_problems, output_problems
from airflow_dynamic_tables.exceptions import DefinitionError

TABLES = """defaults: {catalog: lake, database: sales}
dynamic_tables:
- name: t
  freshness: 1 day
  partitioned_by: [country, day(ts), bucket(16, id)]
  query: >-
    SELECT 'DE' AS country, TIMESTAMP'2026-01-01 00:00:00' AS ts, CAST(1 AS BIGINT) AS id, 'a' AS name,
    DATE'2026-01-01' AS d
"""


def declared(folder: Path, *changes: tuple[str, str], file: str = "tables.yaml", text: str = TABLES) -> DynamicTable:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / file).write_text(text)
    return load_definitions(folder / file, cache=Cache(None)).tables[TableIdentifier("lake", "sales", "t")]


def test_keys_are_columns_and_what_is_computed_of_them(tmp_path: Path) -> None:
    table = declared(tmp_path)
    assert table.partition_keys == ("country", "day(ts)", "bucket(16, id)")
    assert restored(normalised(table)).partition_keys == table.partition_keys


@pytest.mark.parametrize(
    "written", ["[days(ts), 'bucket(16,id)']", '["DAY(ts)", "bucket( 16 , `id` )"]', "[day(ts), bucket(16,id)]"]
)
def test_every_way_to_write_a_key_means_the_same(tmp_path: Path, written: str) -> None:
    table = declared(tmp_path, ("[country, day(ts), bucket(16, id)]", written))
    assert table.partition_keys == ("day(ts)", "bucket(16, id)")


def test_a_column_may_be_called_as_spark_calls_what_it_computes(tmp_path: Path) -> None:
    sums = ("CAST(1 AS BIGINT) AS id", "CAST(1 AS BIGINT) AS `sum(id)`")
    table = declared(tmp_path, ("[country, day(ts), bucket(16, id)]", '["bucket(16, `sum(id)`)"]'), sums)
    assert table.partition_keys == ("bucket(16, sum(id))",)
    again = declared(tmp_path, ("country, day(ts), bucket(16, id)", "bucket(16, sum(id))"), sums)
    assert again.partition_keys == table.partition_keys, "in its one spelling"


def test_a_key_that_is_missing_is_told_once_whatever_the_query_returns() -> None:
    keys = [(0, "country"), (9, ""), (10, "ts")]
    assert list(key_problems(keys, "iceberg")) == [(9, "a key is missing here; take a comma away")]
    assert list(output_problems(keys, analyse("SELECT 'DE' AS country, 1 AS ts"))) == []


def test_a_statement_says_them_as_well(tmp_path: Path) -> None:
    table = declared(tmp_path)
    text = statement_of(table)
    assert "PARTITIONED BY (country, day(ts), bucket(16, id))" in text
    again = declared(tmp_path, file="t.sql", text=text.replace("CREATE DYNAMIC TABLE t", "CREATE DYNAMIC TABLE lake.sales.t"))
    assert again.partition_keys == table.partition_keys


def test_a_column_keeps_its_date_formatter_beside_them(tmp_path: Path) -> None:
    formatter = "freshness: 1 day\n  options: {partition.fields.country.date-formatter: yyyy}"
    assert declared(tmp_path, ("freshness: 1 day", formatter)).formatters == {"country": "yyyy"}


_KEYS = "country, day(ts), bucket(16, id)"

_TRANSFORMS = "use year(ts) | month(ts) | day(ts) | hour(ts) | bucket(16, id) | truncate(4, name)"


@pytest.mark.parametrize(
    ("keys", "mistake"),
    [
        ("dayy(ts)", f"5:20: 'dayy' is no transform; {_TRANSFORMS}; did you mean 'day'?"),
        ("country, weekly(ts)", f"5:29: 'weekly' is no transform; {_TRANSFORMS}"),
        ("country, day(tss)", "5:29: the query returns no column 'tss'; did you mean 'ts'?"),
        ("bucket(16, idd), day(ts)", "5:20: the query returns no column 'idd'; did you mean 'id'?"),
        ("day(ts), bucket(0, id)", "5:29: 'bucket(0, id)': how many buckets is a whole number from 1 to 2147483647, not 0"),
        ("bucket(id)", "5:20: 'bucket(id)' needs how many buckets and then a column; write bucket(16, id)"),
        ("hour(d)", "5:20: hour(d) is of a column of type date, and hour takes timestamp | timestamp_ntz; cast it in the query"),
        (
            "hour(id)",
            "5:20: hour(id) is of a column of type bigint, and hour takes timestamp | timestamp_ntz; cast it in the query",
        ),
        ("bucket(4, id), day(ts), bucket(4, id)", "5:44: partition key 'bucket(4, id)' is listed twice"),
        ("day(ts), country, months(ts)", "5:38: day(ts) and month(ts) are of one column; day(ts) alone says it all"),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path: Path, keys: str, mistake: str) -> None:
    assert mistakes(tmp_path, (_KEYS, keys)) == [mistake]


def test_another_format_says_which_ones_can(tmp_path: Path) -> None:
    said = (
        "is computed of a column, which tables of format parquet cannot be partitioned by; use format iceberg, or let the query"
    )
    assert mistakes(tmp_path, ("freshness: 1 day", "freshness: 1 day\n  format: parquet")) == [
        f"6:29: day(ts) {said} return it as a column",
        f"6:38: bucket(16, id) {said} return it as a column",
    ]


def test_a_column_cannot_have_the_name_of_the_partitions(tmp_path: Path) -> None:
    assert mistakes(tmp_path, ("'a' AS name", "'a' AS ts_day")) == [
        "5:29: the query returns a column 'ts_day', and Iceberg calls the partitions of day(ts) so; give the column another name"
    ]


def test_what_is_computed_has_no_date_formatter(tmp_path: Path) -> None:
    formatter = "freshness: 1 day\n  options: {partition.fields.ts.date-formatter: yyyy-MM-dd}"
    assert mistakes(tmp_path, ("freshness: 1 day", formatter)) == [
        "5:13: 'ts' is no partition key of this table; a date formatter is for a key that is a column"
    ]


@pytest.mark.parametrize("version", ["1", "3"])
def test_another_format_version_is_refused(tmp_path: Path, version: str) -> None:
    options = f"freshness: 1 day\n  options: {{iceberg.format-version: {version}}}"
    assert mistakes(tmp_path, ("freshness: 1 day", options)) == [
        "5:13: PyIceberg commits tables of Iceberg's format version 2, and reads others as sources; remove the option"
    ]


def mistakes(folder: Path, *changes: tuple[str, str]) -> list[str]:
    with pytest.raises(DefinitionError) as error:
        declared(folder, *changes)
    return [str(mistake).partition("tables.yaml:")[2] for mistake in error.value.mistakes]
