"""CREATE TABLE AS by statements: what it makes, and where it is wrong."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.sql.session import StatementResult
from tests.sql.conftest import Say, fields


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_table_is_made_once_kept_and_replaced(say: Say, table_format: str) -> None:
    (made,) = say(f"CREATE TABLE figures USING {table_format} COMMENT 'three' AS\nSELECT 1 AS x;")
    assert _made(made) == ("lake.sales.figures", "created", 1, 3)
    (kept,) = say("CREATE TABLE IF NOT EXISTS figures AS SELECT 1 AS x")
    assert _made(kept) == ("lake.sales.figures", "exists", None, None)
    (replaced,) = say("CREATE OR REPLACE TABLE lake.sales.figures AS SELECT 2 * x AS x FROM figures")
    assert _made(replaced) == ("lake.sales.figures", "replaced", 2, 3)
    (rows,) = say("SELECT x FROM figures LIMIT 5")
    assert rows.rows == ((1,), (2,), (3,))
    (listed,) = say("SHOW TABLES")
    assert [row[0] for row in listed.rows] == ["lake.sales.figures"] or listed.rows == (("figures",),)


def _made(result: StatementResult) -> tuple[object, ...]:
    return tuple(fields(result)[name] for name in ("table", "outcome", "version", "rows"))


WRONG = {
    "CREATE OR REPLACE TABLE IF NOT EXISTS a AS SELECT 1 AS x": (
        "1:25: OR REPLACE and IF NOT EXISTS contradict each other; take one of them away"
    ),
    "CREATE TABLE a (x INT) AS SELECT 1 AS x": "1:16: the query says which columns the table has; take the list away",
    "CREATE TABLE a": "1:15: expected USING, PARTITIONED, COMMENT or AS, found the end of the text",
    "CREATE TABLE a.b.c.d AS SELECT 1 AS x": "1:19: a table has at most three names: catalog.database.table",
    "CREATE TABLE a USING parkuet AS SELECT 1 AS x": "1:22: unknown format 'parkuet'; did you mean 'parquet'?",
    "CREATE TABLE a PARTITIONED BY (x, x) AS SELECT 1 AS x": "1:35: 'x' stands here twice, first in line 1",
    "CREATE TABLE a USING iceberg USING iceberg AS SELECT 1 AS x": "1:30: USING stands here twice",
    "CREATE TABLE a AS\nSELECT 1 AS x\nFROM nowhere": (
        "3:6: unknown table 'nowhere'; lake.sales.nowhere is in no catalog and no definition"
    ),
    "CREATE TABLE a AS DELETE FROM b": "1:19: expected a query, found 'DELETE'",
}


@pytest.mark.parametrize("statement", WRONG)
def test_wrong_statements_are_told_at_their_place(say: Say, statement: str) -> None:
    with pytest.raises(DynamicTableError) as caught:
        say(statement)
    assert str(caught.value).partition(":")[2] == WRONG[statement]
