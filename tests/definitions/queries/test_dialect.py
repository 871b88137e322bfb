"""What Spark reads and sqlglot's own dialect does not."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.queries.editing import expand
from airflow_dynamic_tables.definitions.queries.text import Target, analyse

# Query; the tables it reads; its columns, where the text tells them.
LEGAL = {
    "window_as_first_key": ("SELECT count(*) AS n FROM t GROUP BY window(ts, '1 hour'), k", "t", ("n",)),
    "window_as_only_key": ("SELECT window.start AS w FROM t GROUP BY window(ts, '1 hour')", "t", ("w",)),
    "window_clause": ("SELECT sum(a) OVER w AS n FROM t WINDOW w AS (ORDER BY b)", "t", ("n",)),
    "variant": ("SELECT v:a.b::INT AS x, cast(t.v:a[0] AS INT) AS y, v:['a b'] AS z FROM t", "t", ("x", "y", "z")),
    "table": ("TABLE db.t", "db.t", None),
    "table_in_parentheses": ("(TABLE t) UNION ALL TABLE `u v`", "t u v", None),
    "table_in_subquery": ("SELECT a FROM t WHERE a IN (TABLE u) AND EXISTS (TABLE w)", "t u w", ("a",)),
    "pipe_on_table": ("TABLE t |> WHERE a > 1 |> SELECT a", "t", None),
    "cast_to_interval": ("SELECT CAST(a AS INTERVAL DAY TO SECOND) AS x FROM t", "t", ("x",)),
    "pipe_on_union": ("(TABLE t) UNION ALL TABLE u |> WHERE a IN (SELECT a FROM w) |> LIMIT 3", "t u w", None),
    "pipe_on_values": ("VALUES (1), (2) AS v(a) |> WHERE a IN (TABLE t)", "t", None),
    "pipe_set": ("FROM t |> SET a = a + 1, b = (SELECT max(c) FROM u)", "t u", None),
    "pipe_orders": ("FROM t |> ORDER BY (SELECT max(a) FROM u) |> ORDER BY b |> SORT BY c DISTRIBUTE BY d", "t u", None),
    "pipe_clusters": ("TABLE t |> CLUSTER BY a |> DISTRIBUTE BY b |> LIMIT 1", "t", None),
    "pipe_limit_behind_select": ("SELECT * FROM t |> ORDER BY a |> LIMIT 1 |> LIMIT 2", "t", None),
    "pipe_drop": ("FROM t |> DROP a, b |> LIMIT 3 OFFSET 1 |> OFFSET 1", "t", None),
    "pipe_union": ("FROM t |> UNION ALL TABLE u |> EXCEPT SELECT a FROM w", "t u w", None),
    "recursion_level": (
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 9 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r JOIN t) SELECT n FROM r",
        "t",
        ("n",),
    ),
    "unsigned_shift": ("SELECT a >>> 2 AS x, CAST(b AS array<array<array<int>>>) FROM t", "t", ("x", "b")),
    "distinct_pairs": ("SELECT corr(DISTINCT a, b) AS x FROM t", "t", ("x",)),
    "more_arguments": ("SELECT first_value(a, true) AS x, shuffle(b, 7) AS y FROM t", "t", ("x", "y")),
    "geometry": ("SELECT a::GEOMETRY(ANY) AS x FROM t", "t", ("x",)),
    "pivot_of_expression": ("SELECT * FROM t PIVOT (sum(a) + 1 AS x, max(b) FOR c IN (1 AS y, 2))", "t", None),
    "signed_intervals": ("SELECT -INTERVAL -1 day 1 hour -2 minutes AS x, INTERVAL 1 day - i AS y FROM t", "t", ("x", "y")),
    "names_that_spark_makes": (
        "SELECT +a, a, (b), b[0], CAST(smallint('1') AS INT), CAST(smallint('2') AS INT), CAST(c AS INT), f(d).e FROM t",
        "t",
        (None, "a", "b", None, None, None, "c", None),
    ),
}


@pytest.mark.parametrize(("query", "reads", "outputs"), LEGAL.values(), ids=LEGAL)
def test_legal_queries_are_read(query: str, reads: str, outputs: tuple[str | None, ...] | None) -> None:
    analysis = analyse(query)
    assert analysis.problems == ()
    assert " ".join(".".join(part.text for part in reference.parts) for reference in analysis.references) == reads
    assert analysis.outputs == outputs


def test_a_table_query_is_written_as_a_select() -> None:
    analysis = analyse("table /* all */ t UNION ALL (TABLE db.u) |> WHERE a IN (TABLE w)")
    targets = [Target(TableIdentifier("c", "d", name), f"`{name}_0`") for name in ("t", "u", "w")]
    assert expand(analysis, targets) == (
        "SELECT * FROM /* all */ `t_0` AS `t` UNION ALL (SELECT * FROM `u_0` AS `u`) |> WHERE a IN (SELECT * FROM `w_0` AS `w`)"
    )


@pytest.mark.parametrize(
    ("query", "offset", "message"),
    [
        ("SELECT a FROM t WHERE a =", 24, "EQ is incomplete"),
        ("SELECT sum( FROM t", 17, "expecting )"),
        ("FROM t |> RENAME a AS b", 10, "unsupported pipe syntax operator: 'RENAME'"),
        ("SELECT a INTO x FROM t", 9, "a query writes nothing itself; remove INTO"),
        ("SELECT * FROM f(TABLE t)", 14, "f is given a table, which cannot be analysed; read the table in FROM"),
    ],
)
def test_what_is_no_query_is_still_refused_at_its_place(query: str, offset: int, message: str) -> None:
    problem = analyse(query).problems[0]
    assert message in problem.message
    assert problem.offset == offset


def test_a_condition_may_stand_behind_other_joins() -> None:
    query = "SELECT * FROM a JOIN b JOIN c LEFT JOIN d ON d.x ON c.y JOIN (e JOIN f JOIN g USING (i) ON f.j) JOIN h WHERE b.k = 1"
    analysis = analyse(query)
    assert analysis.problems == ()
    assert [reference.parts[0].text for reference in analysis.references] == list("abcdefgh")


@pytest.mark.parametrize("query", ["ALTER TABLE t SET secret", "SELECT get_json_object(a, '$.secret[') AS x FROM t"])
def test_the_text_of_a_query_reaches_no_log(query: str, caplog: pytest.LogCaptureFixture) -> None:
    analyse(query)
    assert caplog.records == []
