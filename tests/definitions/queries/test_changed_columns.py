"""Which columns a change touches: never too few, and not all of them where the text tells better."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.changed_columns import ALL, NONE, Touched, changed_columns, touched_columns


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ("SELECT a, b FROM t", "select a,  b from t -- the same", NONE),
        ("SELECT a, b FROM t", "SELECT b, a FROM t", NONE),
        ("SELECT a, sum(x) AS b FROM t GROUP BY a", "SELECT a, max(x) AS b FROM t GROUP BY a", {"b"}),
        ("SELECT a, b FROM t", "SELECT a, c FROM t", {"b", "c"}),
        ("SELECT a FROM t", "SELECT a, b FROM t", {"b"}),
        ("SELECT a FROM t", "SELECT a FROM t WHERE a > 1", ALL),
        ("SELECT a FROM t", "SELECT a FROM u", ALL),
        ("SELECT DISTINCT a FROM t", "SELECT DISTINCT a, b FROM t", ALL),
        ("SELECT a, 1 AS b FROM t GROUP BY 1", "SELECT lower(a) AS a, 1 AS b FROM t GROUP BY 1", ALL),
        ("SELECT a, 1 AS b FROM t GROUP BY ALL", "SELECT lower(a) AS a, 1 AS b FROM t GROUP BY ALL", ALL),
        ("SELECT a FROM t UNION ALL SELECT 1", "SELECT a FROM t UNION ALL SELECT 2", ALL),
        ("WITH f AS (SELECT 1 AS x) SELECT x, 2 AS y FROM f", "WITH f AS (SELECT 1 AS x) SELECT x, 3 AS y FROM f", {"y"}),
        ("WITH f AS (SELECT 1 AS x) SELECT x FROM f", "WITH f AS (SELECT 2 AS x) SELECT x FROM f", ALL),
        ("SELECT a + 1 FROM t", "SELECT a + 2 FROM t", ALL),
        ("SELECT FROM WHERE", "SELECT a FROM t", ALL),
    ],
)
def test_what_differs_between_two_queries(before: str, now: str, changed: Touched) -> None:
    assert changed_columns(before, now) == changed


@pytest.mark.parametrize(
    ("query", "touched"),
    [
        ("SELECT x AS a, y AS b FROM p", {"a"}),
        ("SELECT p.X AS a, p.y AS b FROM p JOIN q ON p.id = q.id", {"a"}),
        ("SELECT sum(x) AS a, max(y) AS b FROM p GROUP BY y", {"a"}),
        ("SELECT x + 1 AS a, a * 2 AS b, y AS c FROM p", {"a", "b"}),
        ("SELECT y AS b FROM p", NONE),
        ("SELECT y AS b, count(*) AS n FROM p GROUP BY y", NONE),
        ("SELECT y AS b FROM p WHERE x > 1", ALL),
        ("SELECT y AS b FROM p JOIN q USING (x)", ALL),
        ("SELECT max(y) AS b FROM p GROUP BY x", ALL),
        ("SELECT y AS b FROM p ORDER BY x LIMIT 1", ALL),
        ("SELECT * FROM p", ALL),
        ("SELECT b FROM (SELECT x AS b FROM p)", ALL),
        ("SELECT b FROM (SELECT y AS b FROM p)", NONE),
        ("SELECT DISTINCT x AS a, y AS b FROM p", ALL),
        ("SELECT DISTINCT y AS b FROM p", NONE),
        ("SELECT x AS a FROM p UNION SELECT 1", ALL),
        ("SELECT y AS a FROM p UNION SELECT 1", NONE),
        ("SELECT FROM WHERE", ALL),
    ],
)
def test_what_of_a_reader_is_touched(query: str, touched: Touched) -> None:
    assert touched_columns(query, frozenset({"x"})) == touched
    assert touched_columns(query, NONE) == NONE
    assert touched_columns(query, ALL) == ALL
