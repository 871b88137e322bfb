"""SHOW, DESCRIBE, EXPLAIN and SELECT tell what is there, and change nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.statements import values
from airflow_dynamic_tables.definitions.statements.parsing import CreateTableAs
from airflow_dynamic_tables.definitions.statements.values import Statement
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DatabaseNotFoundError,
    DefinitionError,
    FunctionAlreadyExistsError,
    NotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.status import TableStatus
from airflow_dynamic_tables.sql.executing import BY_KIND
from airflow_dynamic_tables.sql.session import SqlSession
from tests.sql.conftest import Say, fields

NUMBERS = "CREATE DYNAMIC TABLE numbers COMMENT 'Three' FRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS x"


def test_every_statement_of_the_grammar_is_carried_out() -> None:
    every = {value for value in vars(values).values() if isinstance(value, type) and issubclass(value, Statement)}
    every.add(CreateTableAs)
    assert every - {Statement, values.AlterDynamicTable} == BY_KIND.keys()


def test_dynamic_tables_are_shown_whether_they_are_declared_or_deployed(say: Say, folder: Path) -> None:
    say(f"{NUMBERS}; {NUMBERS.replace('numbers', 'forgotten')}")
    (folder / "lake.sales.forgotten.sql").unlink()
    (folder / "more.yaml").write_text("dynamic_tables:\n- {name: waiting, freshness: 1 hour, query: SELECT 1 AS x}\n")
    (answer,) = say("SHOW DYNAMIC TABLES")
    assert answer.columns == tuple(field.name for field in dataclasses.fields(TableStatus))
    shown = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    names = ("identifier", "defined", "refresh_mode", "freshness", "job_state")
    assert [tuple(table[name] for name in names) for table in shown] == [
        ("lake.sales.forgotten", False, "FULL", "1 day", "INITIALIZING"),
        ("lake.sales.numbers", True, "FULL", "1 day", "INITIALIZING"),
        ("lake.sales.waiting", True, "FULL", "1 hour", None),
    ]
    assert [row[0] for row in say("SHOW MATERIALIZED TABLES IN lake.sales LIKE '%ing'")[0].rows] == ["lake.sales.waiting"]
    others = ["lake.sales.forgotten", "lake.sales.waiting"]
    assert [row[0] for row in say("SHOW DYNAMIC TABLES NOT LIKE 'n_mbers'")[0].rows] == others
    with pytest.raises(DatabaseNotFoundError):
        say("SHOW DYNAMIC TABLES IN nowhere")


def test_catalogs_hold_what_statements_make(say: Say) -> None:
    say("CREATE DATABASE IF NOT EXISTS raw COMMENT 'As it came' WITH ('owner' = 'ada'); USE raw; " + NUMBERS)
    say("CREATE VIEW doubled AS SELECT x * 2 AS y FROM numbers; CREATE FUNCTION f AS 'org.example.F'")
    assert ("raw",) in say("SHOW DATABASES")[0].rows
    assert say("SHOW TABLES")[0].rows == (("doubled",), ("numbers",))
    assert (say("SHOW VIEWS")[0].rows, say("SHOW FUNCTIONS IN lake.raw")[0].rows) == ((("doubled",),), (("f",),))
    assert say("SHOW CATALOGS")[0].rows == (("lake",),)
    for statement in ("VIEW IF NOT EXISTS doubled AS SELECT 1 AS y", "FUNCTION IF NOT EXISTS f AS 'g.G'"):
        assert say(f"CREATE {statement}")[0].rows[0][1] == "exists"
    with pytest.raises(TableAlreadyExistsError):
        say("CREATE VIEW doubled AS SELECT 1 AS y")
    with pytest.raises(DefinitionError, match=r"^-e:2:18: "):
        say("SHOW VIEWS;\nCREATE VIEW v AS FROM")
    with pytest.raises(FunctionAlreadyExistsError):
        say("CREATE FUNCTION f AS 'g.G'")
    with pytest.raises(NotEmptyError):
        say("DROP DATABASE raw")
    say("DROP VIEW doubled; DROP FUNCTION f; DROP FUNCTION IF EXISTS f; DROP DYNAMIC TABLE numbers; USE sales; DROP DATABASE raw")
    assert ("raw",) not in say("SHOW DATABASES")[0].rows


def test_use_changes_what_short_names_are_of(say: Say, session: SqlSession) -> None:
    say("CREATE DATABASE raw; USE raw")
    assert say("USE lake.raw")[0].rows == (("lake", "raw"),)
    with pytest.raises(DatabaseNotFoundError, match=r"There is no database lake\.nowhere; catalog lake has: "):
        say("USE nowhere")
    assert session.database == "raw"
    assert say("USE CATALOG lake")[0].rows == (("lake", "sales"),)


def test_what_declares_a_table_is_shown_as_it_is_written(say: Say) -> None:
    text = "CREATE DYNAMIC TABLE lake.sales.t -- why\nFRESHNESS = '1 day' AS SELECT 1 AS x /* one */ WHERE true"
    say(f"{text};")
    assert say("SHOW CREATE DYNAMIC TABLE t")[0].rows == ((f"{text};",),)
    with pytest.raises(TableNotFoundError, match=r"There is no dynamic table lake\.sales\.u"):
        say("SHOW CREATE DYNAMIC TABLE u")


def test_what_would_declare_a_table_of_yaml_or_of_its_catalog_is_shown(say: Say, folder: Path) -> None:
    (folder / "yaml.yaml").write_text(
        "dynamic_tables:\n- {name: y, freshness: 1 hour, query: SELECT 1 AS x, spark: {conf: {spark.my.password: hidden}}}\n"
    )
    text = (
        'CREATE DYNAMIC TABLE lake.sales.y\nWITH (\n  \'spark\' = \'{"conf": {"spark.my.password": "***"}}\'\n)\n'
        "FRESHNESS = INTERVAL '1' HOUR\nAS\nSELECT 1 AS x;"
    )
    assert say("SHOW CREATE DYNAMIC TABLE y")[0].rows == ((text,),)
    say("CREATE DYNAMIC TABLE z FRESHNESS = '1 day' AS SELECT 1 AS x")
    (folder / "lake.sales.z.sql").unlink()
    assert say("SHOW CREATE DYNAMIC TABLE z")[0].rows == (
        ("CREATE DYNAMIC TABLE lake.sales.z\nFRESHNESS = INTERVAL '1' DAY\nAS\nSELECT 1 AS x;",),
    )


def test_columns_are_described_from_the_first_version_on_and_before_as_the_query_tells(say: Say, folder: Path) -> None:
    (folder / "waiting.yaml").write_text(
        "dynamic_tables:\n- {name: waiting, freshness: 1 hour, columns: {y: why}, query: 'SELECT CAST(1 AS INT) AS y'}\n"
    )
    assert say("DESCRIBE waiting")[0].rows == (("y", "int", "why"),)
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    assert say("DESC numbers")[0].rows == (("x", "bigint", None),)
    extended = {row[0]: row[1] for row in say("DESCRIBE EXTENDED numbers")[0].rows}
    assert (extended["comment"], extended["kind"], extended["rows"]) == ("Three", "dynamic table", "3")
    with pytest.raises(TableNotFoundError):
        say("DESCRIBE nothing")


def test_rows_that_are_committed_are_read(say: Say) -> None:
    say(NUMBERS)
    with pytest.raises(TableNotFoundError, match="no version yet"):
        say("SELECT * FROM numbers LIMIT 2")
    refreshed = fields(say("ALTER DYNAMIC TABLE numbers REFRESH")[0])
    assert (refreshed["table"], refreshed["state"], refreshed["version"]) == ("lake.sales.numbers", "SUCCEEDED", 1)
    assert say("SELECT * FROM numbers LIMIT 2") == say("select x FROM lake.sales.numbers LIMIT 2")
    (answer,) = say("SELECT x, X AS `twice` FROM numbers LIMIT 10000")
    assert (answer.columns, answer.rows) == (("x", "twice"), ((1, 1), (2, 2), (3, 3)))
    assert say("SELECT x FROM numbers LIMIT 0")[0].rows == ()


def test_a_limit_is_not_needed_and_a_note_says_what_it_left_out(say: Say) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    for query in ("SELECT x FROM numbers", "SELECT x FROM numbers LIMIT 10001", "SELECT x FROM numbers LIMIT 3"):
        (answer,) = say(query)
        assert (answer.rows, answer.note) == (((1,), (2,), (3,)), None)
    assert say("SELECT x FROM numbers LIMIT 2")[0].note is None


def test_an_unknown_column_is_told_at_its_place(say: Say) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    with pytest.raises(DefinitionError) as refused:
        say("\n SELECT x, z FROM numbers LIMIT 2")
    assert str(refused.value).startswith("-e:2:12: the table has no column 'z'; it has x")


def test_explaining_does_nothing(say: Say, folder: Path) -> None:
    explained = dict(say(f"EXPLAIN {NUMBERS}")[0].rows)
    assert (explained["identifier"], explained["change"], explained["cron"]) == ("lake.sales.numbers", "NEW", "0 0 * * *")
    assert list(folder.iterdir()) == []
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    before = (folder / "lake.sales.numbers.sql").read_bytes()
    assert dict(say("EXPLAIN ALTER DYNAMIC TABLE numbers AS SELECT 1 AS y")[0].rows)["change"] == "REBUILD"
    assert "WHERE" not in dict(say("EXPLAIN ALTER DYNAMIC TABLE numbers REFRESH")[0].rows)["statement"]
    assert say("EXPLAIN SELECT x FROM numbers LIMIT 7")[0].rows[0][0] == "lake.sales.numbers"
    with pytest.raises(DefinitionError, match=r"^-e:1:\d+: "):
        say("EXPLAIN CREATE DYNAMIC TABLE t FRESHNESS = '7 hours' AS SELECT 1 AS x")
    assert (folder / "lake.sales.numbers.sql").read_bytes() == before


def test_a_table_is_suspended_and_resumed(say: Say) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    (suspended, refreshed, resumed) = say(
        "ALTER DYNAMIC TABLE numbers SUSPEND; ALTER DYNAMIC TABLE numbers REFRESH; ALTER DYNAMIC TABLE numbers RESUME"
    )
    assert suspended.rows[0][1:4] == ("RUNNING", "SUSPENDED", "by a statement of somebody@somewhere")
    assert fields(refreshed)["state"] == "SKIPPED"
    assert resumed.rows[0][1:3] == ("SUSPENDED", "RUNNING")
    with pytest.raises(DefinitionError, match="options of one resumption are not kept"):
        say("ALTER DYNAMIC TABLE numbers RESUME WITH ('a' = 'b')")


def test_a_range_of_partitions_is_one_refresh(say: Say) -> None:
    say("""CREATE DYNAMIC TABLE days PARTITIONED BY (ds) WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd')
        FRESHNESS = '1 day' AS SELECT '2024-01-01' AS ds, 1 AS x""")
    [explained] = say("EXPLAIN ALTER DYNAMIC TABLE days REFRESH PARTITION (ds = '2024-02-28') TO (ds = '2024-03-01')")
    assert all(day in str(explained.rows) for day in ("2024-02-28", "2024-02-29", "2024-03-01"))
    with pytest.raises(ConfigurationError, match=r"PARTITION \.\.\. TO: the range ends before it begins"):
        say("ALTER DYNAMIC TABLE days REFRESH PARTITION (ds = '2024-03-01') TO (ds = '2024-02-28')")
