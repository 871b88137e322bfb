"""What a query reads, and how it reads with every name in full."""

from __future__ import annotations

import json

import pytest
import sqlglot

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.definitions.queries.editing import expand, replace_functions, replace_tables
from airflow_dynamic_tables.definitions.queries.text import Analysis, Target, analyse, same_query

# Query; the tables it reads; the query with every name in full (C is the default catalog, D the default database).
CASES = {
    "plain": ("SELECT a FROM t", "t", "SELECT a FROM `C`.`D`.`t` AS `t`"),
    "two_parts": ("SELECT a FROM raw.t", "raw.t", "SELECT a FROM `C`.`raw`.`t` AS `t`"),
    "three_parts_alias": ("SELECT a FROM lake.raw.t x", "lake.raw.t", "SELECT a FROM `lake`.`raw`.`t` x"),
    "cte": (
        "WITH o AS (SELECT * FROM orders) SELECT * FROM o",
        "orders",
        "WITH o AS (SELECT * FROM `C`.`D`.`orders` AS `orders`) SELECT * FROM o",
    ),
    "cte_shadows_table_but_not_in_itself": (
        "WITH t AS (SELECT * FROM t) SELECT * FROM t JOIN db.t x USING (id)",
        "t db.t",
        "WITH t AS (SELECT * FROM `C`.`D`.`t` AS `t`) SELECT * FROM t JOIN `C`.`db`.`t` x USING (id)",
    ),
    "nested_cte_ends_with_its_query": (
        "SELECT * FROM (WITH t AS (SELECT 1 AS a) SELECT * FROM t) x, t",
        "t",
        "SELECT * FROM (WITH t AS (SELECT 1 AS a) SELECT * FROM t) x, `C`.`D`.`t` AS `t`",
    ),
    "cte_reads_earlier_cte": (
        "WITH a AS (SELECT * FROM x), b AS (SELECT * FROM a) SELECT * FROM b",
        "x",
        "WITH a AS (SELECT * FROM `C`.`D`.`x` AS `x`), b AS (SELECT * FROM a) SELECT * FROM b",
    ),
    "pipe_on_table": (
        "TABLE t |> SELECT C.D.t.a.b, sum(C.D.t.c) OVER w WINDOW w AS (ORDER BY C.D.t.c)\n|> LIMIT 1",
        "t",
        "FROM `C`.`D`.`t` AS `t` |> SELECT `t`.a.b, sum(`t`.c) OVER w WINDOW w AS (ORDER BY `t`.c)\n|> LIMIT 1",
    ),
    "pipe_on_table_of_union": (
        "SELECT a FROM u UNION ALL TABLE t |> WHERE a > 1",
        "u t",
        "SELECT a FROM `C`.`D`.`u` AS `u` UNION ALL SELECT * FROM `C`.`D`.`t` AS `t` |> WHERE a > 1",
    ),
    "recursive_cte": (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    ),
    "cte_in_other_case": ("WITH Abc AS (SELECT 1) SELECT * FROM aBC", "", "WITH Abc AS (SELECT 1) SELECT * FROM aBC"),
    "cte_of_union": (
        "WITH c AS (SELECT 1 AS a) SELECT a FROM c UNION ALL SELECT a FROM c EXCEPT SELECT a FROM t",
        "t",
        "WITH c AS (SELECT 1 AS a) SELECT a FROM c UNION ALL SELECT a FROM c EXCEPT SELECT a FROM `C`.`D`.`t` AS `t`",
    ),
    "set_operations": (
        "SELECT a FROM x INTERSECT SELECT a FROM y MINUS SELECT a FROM z",
        "x y z",
        "SELECT a FROM `C`.`D`.`x` AS `x` INTERSECT SELECT a FROM `C`.`D`.`y` AS `y` MINUS SELECT a FROM `C`.`D`.`z` AS `z`",
    ),
    "subqueries_everywhere": (
        "SELECT (SELECT max(v) FROM m) AS v FROM (SELECT * FROM t) s WHERE EXISTS (SELECT 1 FROM e) AND a IN (SELECT a FROM i)",
        "m t e i",
        (
            "SELECT (SELECT max(v) FROM `C`.`D`.`m` AS `m`) AS v FROM (SELECT * FROM `C`.`D`.`t` AS `t`) s"
            " WHERE EXISTS (SELECT 1 FROM `C`.`D`.`e` AS `e`) AND a IN (SELECT a FROM `C`.`D`.`i` AS `i`)"
        ),
    ),
    "joins": (
        "SELECT * FROM a JOIN b USING (k) LEFT ANTI JOIN c ON a.k = c.k CROSS JOIN d",
        "a b c d",
        (
            "SELECT * FROM `C`.`D`.`a` AS `a` JOIN `C`.`D`.`b` AS `b` USING (k)"
            " LEFT ANTI JOIN `C`.`D`.`c` AS `c` ON a.k = c.k CROSS JOIN `C`.`D`.`d` AS `d`"
        ),
    ),
    "joins_in_parentheses": (
        "SELECT * FROM (a JOIN s.b ON a.k = s.b.k)",
        "a s.b",
        "SELECT * FROM (`C`.`D`.`a` AS `a` JOIN `C`.`s`.`b` AS `b` ON a.k = `b`.k)",
    ),
    "comma": ("SELECT * FROM a, b x", "a b", "SELECT * FROM `C`.`D`.`a` AS `a`, `C`.`D`.`b` x"),
    "lateral_view": (
        "SELECT id, tag FROM posts LATERAL VIEW OUTER explode(tags) p AS tag",
        "posts",
        "SELECT id, tag FROM `C`.`D`.`posts` AS `posts` LATERAL VIEW OUTER explode(tags) p AS tag",
    ),
    "lateral_subquery": (
        "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.k = a.k)",
        "a b",
        "SELECT * FROM `C`.`D`.`a` AS `a`, LATERAL (SELECT * FROM `C`.`D`.`b` AS `b` WHERE b.k = a.k)",
    ),
    "table_functions": (
        "SELECT * FROM range(10) r, VALUES (1, 'a') AS v(n, s), explode(array(1)) e",
        "",
        "SELECT * FROM range(10) r, VALUES (1, 'a') AS v(n, s), explode(array(1)) e",
    ),
    "columns_with_database": (
        "SELECT raw.orders.amount, C.raw.orders.id, raw.orders.* FROM raw.orders WHERE raw.orders.ds > '1'",
        "raw.orders",
        "SELECT `orders`.amount, `orders`.id, `orders`.* FROM `C`.`raw`.`orders` AS `orders` WHERE `orders`.ds > '1'",
    ),
    "columns_with_database_in_subquery": (
        "SELECT * FROM raw.orders WHERE EXISTS (SELECT 1 FROM c WHERE c.id = raw.orders.id)",
        "raw.orders c",
        (
            "SELECT * FROM `C`.`raw`.`orders` AS `raw__orders`"
            " WHERE EXISTS (SELECT 1 FROM `C`.`D`.`c` AS `c` WHERE c.id = `raw__orders`.id)"
        ),
    ),
    "struct_fields": (
        "SELECT a.b.c, o.address.city.zip, raw.orders.address.city FROM raw.orders, raw.x o",
        "raw.orders raw.x",
        "SELECT a.b.c, o.address.city.zip, `orders`.address.city FROM `C`.`raw`.`orders` AS `orders`, `C`.`raw`.`x` o",
    ),
    "same_name_in_two_databases": (
        "SELECT raw.orders.a, crm.orders.b FROM raw.orders JOIN crm.orders ON raw.orders.id = crm.orders.id",
        "raw.orders crm.orders",
        (
            "SELECT `raw__orders`.a, `crm__orders`.b FROM `C`.`raw`.`orders` AS `raw__orders`"
            " JOIN `C`.`crm`.`orders` AS `crm__orders` ON `raw__orders`.id = `crm__orders`.id"
        ),
    ),
    "window": (
        "SELECT a, row_number() OVER (PARTITION BY k ORDER BY t.ts DESC) AS n FROM t QUALIFY n = 1",
        "t",
        "SELECT a, row_number() OVER (PARTITION BY k ORDER BY t.ts DESC) AS n FROM `C`.`D`.`t` AS `t` QUALIFY n = 1",
    ),
    "pivot": (
        "SELECT * FROM t PIVOT (sum(v) FOR q IN (1 AS a, 2 AS b))",
        "t",
        "SELECT * FROM `C`.`D`.`t` AS `t` PIVOT (sum(v) FOR q IN (1 AS a, 2 AS b))",
    ),
    "sample": (
        "SELECT * FROM t TABLESAMPLE (10 PERCENT) REPEATABLE (7) WHERE a > 1",
        "t",
        "SELECT * FROM `C`.`D`.`t` TABLESAMPLE (10 PERCENT) REPEATABLE (7) AS `t` WHERE a > 1",
    ),
    "quoted_names": (
        "SELECT `a.b`, `my db`.`t.1`.x FROM `my db`.`t.1`",
        "`my db`.`t.1`",
        "SELECT `a.b`, `t.1`.x FROM `C`.`my db`.`t.1` AS `t.1`",
    ),
    "hints_and_comments": (
        "SELECT /*+ BROADCAST(raw.c), REPARTITION(3) */ * -- all of them\nFROM raw.c /* the customers */",
        "raw.c",
        "SELECT /*+ BROADCAST(`c`), REPARTITION(3) */ * -- all of them\nFROM `C`.`raw`.`c` AS `c` /* the customers */",
    ),
    "literals": (
        r"""SELECT DATE '2024-01-01' + INTERVAL '1' DAY, 'it''s', "a \" b", r'\d', 1L, 2.5BD, X'1F' FROM t""",
        "t",
        r"""SELECT DATE '2024-01-01' + INTERVAL '1' DAY, 'it''s', "a \" b", r'\d', 1L, 2.5BD, X'1F' FROM `C`.`D`.`t` AS `t`""",
    ),
    "lambdas_maps_arrays": (
        "SELECT transform(xs, (x, i) -> x + i), map('a', 1)['a'], array(1, 2)[0], named_struct('a', 1).a FROM t",
        "t",
        "SELECT transform(xs, (x, i) -> x + i), map('a', 1)['a'], array(1, 2)[0], named_struct('a', 1).a FROM `C`.`D`.`t` AS `t`",
    ),
    "named_arguments": (
        "SELECT mask(s, lowerChar => 'q') FROM t",
        "t",
        "SELECT mask(s, lowerChar => 'q') FROM `C`.`D`.`t` AS `t`",
    ),
    "grouping_sets": (
        "SELECT a, b, sum(c) FROM t GROUP BY GROUPING SETS ((a, b), (a), ()) HAVING sum(c) > 0",
        "t",
        "SELECT a, b, sum(c) FROM `C`.`D`.`t` AS `t` GROUP BY GROUPING SETS ((a, b), (a), ()) HAVING sum(c) > 0",
    ),
    "unknown_functions_stay": (
        "SELECT my_udf(a), try_cast(b AS int), date_add(c, 1), c::date FROM t",
        "t",
        "SELECT my_udf(a), try_cast(b AS int), date_add(c, 1), c::date FROM `C`.`D`.`t` AS `t`",
    ),
    "not_only_ascii": ("SELECT 'größe 🙂', `ä` FROM `tä`", "`tä`", "SELECT 'größe 🙂', `ä` FROM `C`.`D`.`tä` AS `tä`"),
    "from_first": ("FROM t SELECT a", "t", "FROM `C`.`D`.`t` AS `t` SELECT a"),
    "pipe": ("FROM t |> WHERE a > 1 |> SELECT a", "t", "FROM `C`.`D`.`t` AS `t` |> WHERE a > 1 |> SELECT a"),
    "semicolon": ("SELECT a FROM t; -- done", "t", "SELECT a FROM `C`.`D`.`t` AS `t`"),
    "order_and_limit": (
        "SELECT a FROM t SORT BY a DISTRIBUTE BY b",
        "t",
        "SELECT a FROM `C`.`D`.`t` AS `t` SORT BY a DISTRIBUTE BY b",
    ),
    "table_read_twice": (
        "SELECT * FROM t x JOIN t y USING (k)",
        "t t",
        "SELECT * FROM `C`.`D`.`t` x JOIN `C`.`D`.`t` y USING (k)",
    ),
}


def _targets(analysis: Analysis) -> list[Target]:
    names = [tuple(part.text for part in reference.parts) for reference in analysis.references]
    identifiers = [TableIdentifier(*("C", "D")[: 3 - len(parts)], *parts) for parts in names]
    return [Target(identifier, identifier.sql) for identifier in identifiers]


@pytest.mark.parametrize(("query", "reads", "expanded"), CASES.values(), ids=CASES)
def test_upstream_and_expanded_query(query: str, reads: str, expanded: str) -> None:
    analysis = analyse(query)
    assert analysis.problems == ()
    found = [target.identifier for target in _targets(analysis)]
    wanted = _split(reads)
    assert found == [TableIdentifier.parse(name, catalog="C", database="D") for name in wanted]
    assert expand(analysis, _targets(analysis)) == expanded


def _split(names: str) -> list[str]:
    return [names] if names.startswith("`") else names.split()


@pytest.mark.parametrize("expanded", [case[2] for case in CASES.values()], ids=CASES)
def test_expanded_query_is_a_query_and_expands_to_itself(expanded: str) -> None:
    sqlglot.parse_one(expanded, dialect="spark")
    analysis = analyse(expanded)
    assert analysis.problems == ()
    assert expand(analysis, _targets(analysis)) == expanded


@pytest.mark.parametrize("expanded", [case[2] for case in CASES.values()], ids=CASES)
def test_bound_query_reads_the_views_only(expanded: str) -> None:
    identifiers = list(dict.fromkeys(target.identifier for target in _targets(analyse(expanded))))
    views = {identifier: f"view {number}" for number, identifier in enumerate(identifiers)}
    bound = replace_tables(analyse(expanded), {identifier: quote(view) for identifier, view in views.items()})
    read = {reference.parts[0].text for reference in analyse(bound).references}
    assert read == set(views.values())
    for identifier, view in views.items():
        bound = bound.replace(f"`{view}`", identifier.sql)
    assert bound == expanded


def test_analysis_survives_json() -> None:
    for query, _, _ in CASES.values():
        analysis = analyse(query)
        assert from_plain(Analysis, to_plain(analysis)) == analysis


@pytest.mark.parametrize(
    ("query", "outputs"),
    [
        ("SELECT a, t.b, b AS c, d.e.f, count(*) AS n FROM t", ("a", "b", "c", "f", "n")),
        ("SELECT a FROM t UNION ALL SELECT b FROM t", ("a",)),
        ("WITH x AS (SELECT 1 AS one) SELECT one FROM x", ("one",)),
        ("(SELECT a FROM t) ORDER BY a", ("a",)),
        ("SELECT explode(m) AS (k, v), a FROM t", ("k", "v", "a")),
        ("SELECT sum(a), b FROM t", (None, "b")),
        ("SELECT * FROM t", None),
        ("SELECT t.*, a FROM t", None),
        ("SELECT inline(xs) FROM t", None),
        ("VALUES (1, 2)", None),
    ],
)
def test_outputs(query: str, outputs: tuple[str | None, ...] | None) -> None:
    assert analyse(query).outputs == outputs


def test_same_query_ignores_form_only() -> None:
    assert same_query("SELECT a FROM t WHERE b = 1", "select a\n  from t -- the table\n where b=1")
    assert not same_query("SELECT a FROM t", "SELECT b FROM t")
    assert not same_query("SELECT 'A' FROM t", "SELECT 'a' FROM t")
    assert not same_query("SELECT a FROM", "SELECT a FROM t")


CALLS = {
    "SELECT lake.sales.f(a, g(b)) FROM t": ["lake.sales.f", "g"],
    "SELECT `my db`.net (price) FROM t WHERE is_big(price)": ["my db.net", "is_big"],
    "SELECT upper(a), sum(b) OVER (PARTITION BY k), a.b.c, explode(split_it(c)) FROM t": ["split_it"],
    "SELECT transform(xs, x -> s.h(x)) FROM v(1) AS t(xs)": ["s.h"],
    "SELECT s.upper(a), f(a).field, f(a)[0] FROM t -- f(": ["s.upper", "f", "f"],
    "SELECT system.builtin.abs(1)": ["system.builtin.abs"],
    "SELECT `Odd Fn`(1) /* g(x) */, 'h(y)'": ["Odd Fn"],
}


@pytest.mark.parametrize("query", CALLS)
def test_functions_that_sql_does_not_have_are_found_where_they_stand(query: str) -> None:
    analysis = analyse(query)
    assert [".".join(part.text for part in call) for call in analysis.calls] == CALLS[query]
    assert all(query[part.start : part.end].strip("`") == part.text for call in analysis.calls for part in call)
    assert from_plain(Analysis, json.loads(json.dumps(to_plain(analysis)))) == analysis


def test_nothing_but_the_named_functions_is_replaced() -> None:
    query = "SELECT lake.s.F(a), f(a) /* f(a) */, 'f(a)', s.f(a), upper(f) FROM f"
    names = {("lake", "s", "F"): "`t1`", ("f",): "`t2`"}
    assert replace_functions(analyse(query), names.get) == "SELECT `t1`(a), `t2`(a) /* f(a) */, 'f(a)', s.f(a), upper(f) FROM f"
