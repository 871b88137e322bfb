"""Files of statements beside YAML: the same tables by the same rules, and everything that is wrong with them at its place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.limits import MISTAKES_PER_FILE
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import (
    load_definitions,
    load_drafted_definitions,
    load_sound_definitions,
    load_task_definitions,
)
from airflow_dynamic_tables.definitions.model import Conventions, Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DefinitionError

YAML = """
defaults: {catalog: lake, database: sales}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders}
views:
  - {name: good, query: "SELECT * FROM raw.orders WHERE amount > 0", comment: no returns}
dynamic_tables:
  - name: daily
    comment: It's the revenue
    freshness: INTERVAL '1' DAY
    refresh_mode: full
    partitioned_by: [ds]
    columns: {revenue: in euros}
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd, timezone: odd}
    timezone: Europe/Berlin
    versions_to_keep: 3
    skip_unchanged: false
    tags: [a, "true"]
    spark: {conf: {spark.executor.memory: 4g}, conn_id: big}
    expectations:
      - {not_null: [ds]}
      - {predicate: "revenue >= 0 AND ds <> '{x}'", action: warn}
    query: SELECT ds, sum(amount) AS revenue FROM good GROUP BY ds
"""
DEFAULTS = "defaults: {catalog: lake, database: sales}\n"
SOURCES = "sources:\n  - {name: raw.orders, format: parquet, path: /data/orders}\n"
SQL = """
CREATE VIEW good COMMENT 'no returns' AS SELECT * FROM raw.orders WHERE amount > 0;

CREATE DYNAMIC TABLE daily (ds, revenue COMMENT 'in euros')
COMMENT 'It''s the revenue'
PARTITIONED BY (ds)
WITH (
  'partition.fields.ds.date-formatter' = 'yyyy-MM-dd',
  'options' = '{timezone: odd}',
  'timezone' = 'Europe/Berlin',
  'versions_to_keep' = '3',
  'skip_unchanged' = 'false',
  'tags' = '[a, "true"]',
  'spark' = '{conf: {spark.executor.memory: 4g}, conn_id: big}',
  'expectations' = '[{not_null: [ds]}, {predicate: "revenue >= 0 AND ds <> ''{x}''", action: warn}]'
)
FRESHNESS = INTERVAL '1' DAY
REFRESH_MODE = FULL
AS SELECT ds, sum(amount) AS revenue FROM good GROUP BY ds;
"""


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (path / f"{stem}.{suffix}").write_text(text)
    return path


def load(path: Path) -> Definitions:
    return load_definitions(path, conventions=Conventions(variables=("*",)), cache=Cache(None))


def mistakes(path: Path) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        load(path)
    return [str(mistake).removeprefix(f"{path}/").replace(f"{path}/", "") for mistake in caught.value.mistakes]


def without_place(table: DynamicTable) -> DynamicTable:
    return replace(table, path=Path(), line=0, file="", text="")


def test_statements_and_yaml_declare_the_same(tmp_path: Path) -> None:
    of_yaml, of_sql = tmp_path / "yaml", tmp_path / "sql"
    of_yaml.mkdir()
    of_sql.mkdir()
    [expected] = load(folder(of_yaml, all_yaml=YAML)).tables.values()
    [table] = load(folder(of_sql, defaults_yaml=DEFAULTS, sources_yaml=SOURCES, tables_sql=SQL)).tables.values()
    assert without_place(table) == without_place(expected)
    assert table.options == {"partition.fields.ds.date-formatter": "yyyy-MM-dd", "timezone": "odd"}
    assert (table.path.name, table.line, table.file) == ("tables.sql", 4, "sql/tables.sql")
    assert table.text == SQL.strip().partition("\n\n")[2]


def test_mistakes_stand_where_they_are_written(tmp_path: Path) -> None:
    wrong = """
CREATE DYNAMIC TABLE a (dss COMMENT 'day')
PARTITIONED BY (dt)
WITH ('formt' = 'orc', 'timezone' = 'Rome',
      'tags' = '[a, {}]', 'expectations' = '[{not_null: [ds]},
      {predicat: "it''s"}]')
FRESHNESS = INTERVAL '7' HOUR REFRESH_MODE = FULL
AS SELECT ds,
          sum(amount) revenue FROM raw.odrers GROUP BY ds;
CREATE DYNAMIC TABLE b FRESHNESS = '1 day' AS
  SELECT x FROM raw.orders
  WHERE;
CREATE DYNAMIC TABLE c FRESHNESS = '1 dya' WITH ('params' = '{it''s: [}') AS SELECT 1 AS x;
CREATE DYNAMIC TABLE d FRESHNESS = '1 dya' AS SELECT 1 AS x;
"""
    path = folder(tmp_path, defaults_yaml=DEFAULTS, sources_yaml=SOURCES, tables_sql=wrong)
    assert mistakes(path) == [
        "tables.sql:4:7: unknown key 'formt'; did you mean 'format'?",
        "tables.sql:4:37: there is no time zone 'Rome'; use a name such as 'Europe/Berlin'",
        "tables.sql:5:21: 'tags' must be text, not a mapping",
        "tables.sql:6:8: unknown key 'predicat'; did you mean 'predicate'?",
        "tables.sql:7:13: no cron schedule ticks every 7 hours; use '6 hours' or '8 hours', or set 'schedule'",
        "tables.sql:9:36: unknown table 'raw.odrers'; did you mean 'raw.orders'?",
        "tables.sql:12:3: bad SQL: WHERE is incomplete",
        "tables.sql:13:71: is no YAML: did not find expected node content",
        "tables.sql:14:36: 'dya' is no unit of freshness; use seconds, minutes, hours, days or weeks",
    ]


def test_columns_are_looked_for_in_the_query(tmp_path: Path) -> None:
    sql = """
CREATE DYNAMIC TABLE a (x, dss COMMENT 'day') PARTITIONED BY (dt)
WITH ('partition.fields.d.date-formatter' = 'yyyy') FRESHNESS = '1 day'
AS SELECT 1 AS x, '2024' AS ds
"""
    assert mistakes(folder(tmp_path, tables_sql=sql)) == [
        "tables.sql:2:28: the query returns no column 'dss'; did you mean 'ds'?",
        "tables.sql:2:63: the query returns no column 'dt'",
        "tables.sql:3:7: 'd' is no partition key of this table",
    ]


def test_a_column_list_orders_and_renames_nothing(tmp_path: Path) -> None:
    sql = "CREATE DYNAMIC TABLE a ({}) FRESHNESS = '1 day' AS SELECT 1 AS x, 2 AS y, 3 AS z"
    assert mistakes(folder(tmp_path, tables_sql=sql.format("y, x"))) == [
        "tables.sql:1:25: a column list orders nothing: the query returns x, y, z; list them so"
    ]
    assert mistakes(folder(tmp_path, tables_sql=sql.format("a, b"))) == [
        "tables.sql:1:25: the query returns no column 'a'",
        "tables.sql:1:28: the query returns no column 'b'",
    ]
    assert load(folder(tmp_path, tables_sql=sql.format("x, z COMMENT 'last'"))).tables


def test_option_in_yaml_is_read_at_its_place(tmp_path: Path) -> None:
    text = "CREATE DYNAMIC TABLE a FRESHNESS = '1 day' WITH ('params' = '{it''s: [}') AS SELECT 1 AS x"
    assert mistakes(folder(tmp_path, tables_sql=text)) == ["tables.sql:1:71: is no YAML: did not find expected node content"]


@pytest.mark.parametrize("text", ["SELECT ds FROM nothing", "-- a note\nWITH a AS (SELECT 1) SELECT * FROM a", "(SELECT 1"])
def test_a_query_that_nobody_names_is_no_file_of_definitions(tmp_path: Path, text: str) -> None:
    definitions = load(folder(tmp_path, all_yaml=YAML, query_sql=text))
    assert len(definitions.tables) == 1


def test_a_query_file_is_no_file_of_definitions(tmp_path: Path) -> None:
    named = "dynamic_tables:\n  - {name: a, freshness: 1 day, query_file: sub/../query.sql}\n"
    (tmp_path / "sub").mkdir()
    path = folder(tmp_path, tables_yaml=named, query_sql="SELECT 1 AS x")
    assert next(iter(load(path).tables.values())).query == "SELECT 1 AS x"
    folder(tmp_path, query_sql="CREATE DYNAMIC TABLE b AS SELECT 1 AS x")
    [mistake] = mistakes(path)
    assert mistake == "sub/../query.sql:1:1: a query must be a SELECT, not CREATE"


def test_a_table_of_two_files_is_told_with_both(tmp_path: Path) -> None:
    sql = "CREATE DYNAMIC TABLE other AS SELECT 1 AS x;\nCREATE DYNAMIC TABLE lake.sales.Daily AS SELECT 1 AS x"
    [mistake] = mistakes(folder(tmp_path, all_yaml=YAML, again_sql=sql.replace("Daily", "daily")))
    assert mistake.startswith("again.sql:2:22: lake.sales.daily is already declared in ")
    assert "all.yaml:8" in mistake


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "1:1: is empty; declare a dynamic table, or remove the file"),
        ("-- only a note\n;", "1:1: is empty; declare a dynamic table, or remove the file"),
        (
            "CREATE DYNAMIC TABLE a AS SELECT 1 AS x;\nSELECT 1;",
            "2:1: a file of definitions has only CREATE DYNAMIC TABLE and CREATE VIEW; give others to 'dynamic-tables sql'",
        ),
        (
            "DROP DYNAMIC TABLE a",
            "1:1: a file of definitions has only CREATE DYNAMIC TABLE and CREATE VIEW; give others to 'dynamic-tables sql'",
        ),
        (
            "INSERT INTO a SELECT 1",
            "1:1: expected a query, CREATE, ALTER, DROP, SHOW, DESCRIBE, DESC, EXPLAIN or USE, found 'INSERT'",
        ),
        ("CREATE DYNAMIC TABLE a\rAS SELECT 1", "1:23: has a carriage return that is no line end; save the file with the line"),
        (
            "CREATE DYNAMIC TABLE `a\u202eb` AS SELECT 1 AS x",
            "1:22: a name may not hold the invisible character U+202E; remove it",
        ),
    ],
)
def test_what_is_no_file_of_definitions(tmp_path: Path, text: str, answer: str) -> None:
    [mistake] = mistakes(folder(tmp_path, tables_sql=text))
    assert mistake.startswith(f"tables.sql:{answer}")


def test_a_broken_statement_hides_no_other_table(tmp_path: Path) -> None:
    sql = """
CREATE DYNAMIC TABLE broken FRESHNES = '1 day' AS SELECT 1 AS x;
CREATE DYNAMIC TABLE fine FRESHNESS = '1 day' AS SELECT x FROM broken;
CREATE DYNAMIC TABLE wrong FRESHNESS = '1 day' WITH ('owner' = '[') AS SELECT 1 AS x;
CREATE DYNAMIC TABLE also_fine FRESHNESS = '1 day' AS SELECT x FROM wrong;
"""
    path = folder(tmp_path, tables_sql=sql, all_yaml=YAML)
    definitions, told = load_sound_definitions(path, cache=Cache(None))
    assert {identifier.table for identifier in definitions.tables} == {"fine", "also_fine", "daily"}
    assert [(mistake.line, mistake.column) for mistake in told] == [(2, 29), (4, 66)]


def test_variables_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", "Asia/Tokyo")
    monkeypatch.delenv("NOT_THERE", raising=False)
    text = "CREATE DYNAMIC TABLE a WITH ('timezone' = '${ZONE}', 'pool' = '${POOL:-small}') AS SELECT '${ZONE}' AS x"
    [table] = load(folder(tmp_path, tables_sql=text)).tables.values()
    assert (table.timezone, table.pool, table.query) == ("Asia/Tokyo", "small", "SELECT '${ZONE}' AS x")
    [mistake] = mistakes(folder(tmp_path, tables_sql=text.replace("${ZONE}'", "${NOT_THERE}'", 1)))
    assert mistake.startswith("tables.sql:1:44: there is no environment variable NOT_THERE")


def test_cache_notices_a_changed_file_of_statements(tmp_path: Path) -> None:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    cache = Cache(tmp_path / "cache", settled=timedelta(0))
    text = "CREATE DYNAMIC TABLE a.b.c FRESHNESS = '{}' AS SELECT 1 AS x"
    for freshness in ("1 day", "1 day", "1 hour"):
        folder(definitions, tables_sql=text.format(freshness))
        every = load_definitions(definitions, cache=cache)
        part = load_task_definitions(definitions, "dynamic_table__a__b__c", cache=cache)
        assert [table.freshness.text for table in (*every.tables.values(), *part.tables.values())] == [freshness] * 2


def test_drafts_of_statements_are_read(tmp_path: Path) -> None:
    path = folder(tmp_path, all_yaml=YAML, old_sql="CREATE DYNAMIC TABLE old FRESHNESS = '1 day' AS SELECT 1 AS x")
    drafts = {path / "new.sql": b"CREATE DYNAMIC TABLE new FRESHNESS = '1 day' AS SELECT 1 AS x", path / "old.sql": None}
    definitions, told = load_drafted_definitions(path, drafts, cache=Cache(None))
    assert told == ()
    assert {identifier.table for identifier in definitions.tables} == {"daily", "new"}


def test_a_single_file_of_statements(tmp_path: Path) -> None:
    text = "CREATE DYNAMIC TABLE a FRESHNESS = '1 day' AS SELECT 1 AS x"
    path = folder(tmp_path, defaults_yaml=DEFAULTS, tables_sql=text, other_yaml="nonsense") / "tables.sql"
    assert [str(identifier) for identifier in load(path).tables] == ["lake.sales.a"]


@pytest.mark.parametrize("statement", ["CREATE;", "SHOW TABLES;"])
def test_a_dump_of_wrong_statements_is_told_in_part_and_hides_nothing(tmp_path: Path, statement: str) -> None:
    sql = "CREATE DYNAMIC TABLE a FRESHNESS = '1 day' AS SELECT 1 AS x;\n" + statement * 10_000
    definitions, told = load_sound_definitions(folder(tmp_path, tables_sql=sql), cache=Cache(None))
    assert len(definitions.tables) == 1
    assert len(told) == MISTAKES_PER_FILE + 1
    assert "there are more than these" in told[-1].message
