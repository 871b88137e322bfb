"""Declarations as text are changed where ALTER says so, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.statements.documents import altered, renamed, without
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import AlterDynamicTable, CreateDynamicTable

DECLARED = """\
-- one of several
CREATE DYNAMIC TABLE lake.sales.orders
COMMENT 'it''s' -- all of them
WITH ('format' = 'iceberg', 'versions_to_keep' = '5')
FRESHNESS = INTERVAL '1' DAY
AS SELECT 1 AS n -- one
;
-- the end
"""
BARE = "CREATE DYNAMIC TABLE t AS SELECT 1 AS n;\n"


def _declaration(text: str) -> CreateDynamicTable:
    (statement,) = parse_script(text, Path("t.sql")).statements
    assert isinstance(statement, CreateDynamicTable)
    return statement


def _altered(text: str, action: str) -> str:
    said = f"ALTER DYNAMIC TABLE t {action}"
    (alter,) = parse_script(said, Path("-e")).statements
    assert isinstance(alter, AlterDynamicTable)
    return altered(text, _declaration(text), alter, said)


@pytest.mark.parametrize(
    ("action", "old", "new"),
    [
        ("SET FRESHNESS = '2 hours'", "INTERVAL '1' DAY", "'2 hours'"),
        ("SET REFRESH_MODE = FULL", "AS SELECT", "REFRESH_MODE = FULL\nAS SELECT"),
        ("SET ('format' = 'hive')", "'iceberg'", "'hive'"),
        ("SET ('a.b' = 'c')", "'versions_to_keep' = '5'", "'versions_to_keep' = '5', 'a.b' = 'c'"),
        ("RESET ('format')", "'format' = 'iceberg', ", ""),
        ("RESET ('versions_to_keep')", ", 'versions_to_keep' = '5'", ""),
        ("RESET ('format', 'versions_to_keep')", "WITH ('format' = 'iceberg', 'versions_to_keep' = '5')", ""),
        ("RESET ('unknown')", "", ""),
        ("AS SELECT 2 AS n, 3 AS m", "SELECT 1 AS n", "SELECT 2 AS n, 3 AS m"),
    ],
)  # fmt: skip
def test_only_what_is_named_changes(action: str, old: str, new: str) -> None:
    assert _altered(DECLARED, action) == DECLARED.replace(old, new)


@pytest.mark.parametrize(
    ("action", "clause"),
    [
        ("SET FRESHNESS = INTERVAL '1' HOUR", "FRESHNESS = INTERVAL '1' HOUR"),
        ("SET ('a.b' = 'c', 'd.e' = 'f')", "WITH ('a.b' = 'c', 'd.e' = 'f')"),
    ],
)
def test_clauses_that_were_not_there_come_before_the_query(action: str, clause: str) -> None:
    assert _altered(BARE, action) == BARE.replace("AS SELECT", f"{clause}\nAS SELECT")


def test_options_are_reset_one_by_one_and_what_is_left_can_be_read() -> None:
    options = [f"'o.{number}' = '{number}'" for number in range(5)]
    text = f"CREATE DYNAMIC TABLE t WITH ({', '.join(options)}) AS SELECT 1 AS n"
    for keys in range(1, 31):
        gone = [number for number in range(5) if keys & 1 << number]
        named = ", ".join(f"'o.{number}'" for number in gone)
        left = _declaration(_altered(text, f"RESET ({named})")).options
        assert left is not None
        assert left.as_dict() == {f"o.{number}": str(number) for number in range(5) if number not in gone}


def test_a_declaration_gets_another_name() -> None:
    new = TableIdentifier("lake", "sales", "odd name")
    assert renamed(DECLARED, _declaration(DECLARED), new) == DECLARED.replace("lake.sales.orders", "lake.sales.`odd name`")


def test_a_declaration_is_taken_out_with_its_semicolon() -> None:
    two = BARE + "CREATE DYNAMIC TABLE u AS SELECT 2 AS n;\n"
    first, second = (each for each in parse_script(two, Path("t.sql")).statements if isinstance(each, CreateDynamicTable))
    assert without(two, second) == BARE
    assert without(two, first) == two.removeprefix(BARE)
    assert without("CREATE DYNAMIC TABLE t AS SELECT 1 AS n", _declaration(BARE)) == ""
