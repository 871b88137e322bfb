"""Comments and hints that Spark reads otherwise than the definitions do are refused where they are."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.text import analyse, analyse_condition


@pytest.mark.parametrize(
    ("query", "offset", "why"),
    [
        ("-- \\\nSELECT 1 AS a, '\nCREATE DATABASE evil -- ' AS b", 3, "a backslash at the end of a comment"),
        ("SELECT 1 AS a -- it goes on \\\n", 28, "a backslash at the end of a comment"),
        ("SELECT 1 -- \rFROM secret\n", 12, "a carriage return in a comment"),
        ("SELECT /*+ REPARTITION(1) -- */ '\n */ a AS x FROM parquet.`/secret` -- ' AS x", 26, "a hint cannot hold --"),
        ("SELECT /*+ BROADCAST('x) */ 1 AS a", 21, "a hint cannot hold '"),
        ("SELECT /*+ a /* b */ c */ 1 AS a", 13, r"a hint cannot hold /\*"),
        ("SELECT /* /*+ */ * FROM secret /* */ 1 */ AS a", 10, "a hint cannot stand in a comment"),
    ],
)
def test_what_spark_reads_otherwise(query: str, offset: int, why: str) -> None:
    (problem,) = analyse(query).problems
    assert problem.offset == offset
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(problem.message)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT '-- \\\\', r'\\', \"/*+ -- */\", 1 AS `a--b` -- the end",
        "-- a \\ within\r\nSELECT 1 AS a",
        "SELECT /*+ BROADCAST(`a`), REPARTITION(3, b) */ 1 AS a /* -- 'quotes' \" */",
        "SELECT 1 /* /* nested */ -- \\\n */ AS a",
        "SELECT 1 AS a -- \\",
    ],
)
def test_what_both_read_alike(query: str) -> None:
    assert analyse(query).problems == ()


def test_predicates_too() -> None:
    (problem,) = analyse_condition("a > 1 -- \\\n OR b").problems
    assert problem.offset == 9
