"""Queries that repeat one construct ``n`` times, and the work that they take: it must grow as the text does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any


def _list(item: str, between: str = ", ") -> Callable[[int], str]:
    return lambda n: between.join(item.replace("#", str(number)) for number in range(n))


def _query(before: str, item: str, after: str = "", between: str = ", ") -> Callable[[int], str]:
    repeated = _list(item, between)
    return lambda n: before + repeated(n) + after


def _nested(before: str, opening: str, inner: str, closing: str = "", after: str = "") -> Callable[[int], str]:
    return lambda n: before + opening * n + inner + closing * n + after


def _joins(item: str) -> Callable[[int], str]:
    return _query("SELECT o.a FROM raw.o o ", item, " WHERE o.a = d0.a", " ")


QUERIES: Mapping[str, Callable[[int], str]] = {
    "join": _joins("JOIN raw.d# d#"),
    "inner_join": _joins("INNER JOIN raw.d# d#"),
    "left_join": _joins("LEFT JOIN raw.d# d#"),
    "left_semi_join": _joins("LEFT SEMI JOIN raw.d# d#"),
    "join_lateral": _joins("JOIN LATERAL (SELECT o.a AS x#) d#"),
    "join_subquery": _joins("JOIN (SELECT a FROM raw.d#) d#"),
    "join_function": _joins("JOIN range(#) d#"),
    "join_values": _joins("JOIN VALUES (1) AS d#(a)"),
    "cross_join": _joins("CROSS JOIN raw.d# d#"),
    "natural_join": _joins("NATURAL JOIN raw.d# d#"),
    "join_on": _joins("JOIN raw.d# d# ON o.a = d#.a"),
    "join_using": _joins("LEFT JOIN raw.d# d# USING (a)"),
    "comma_join": _query("SELECT 1 AS x FROM ", "raw.d# d#"),
    "join_then_on": lambda n: "SELECT 1 AS x FROM raw.o " + "JOIN raw.d " * n + "ON true " * n,
    "join_and_cross_join": _joins("JOIN raw.d# d# CROSS JOIN raw.e# e#"),
    "join_in_parentheses": _nested("SELECT 1 AS x FROM ", "(raw.o JOIN ", "raw.d", ")"),
    "join_in_pipe": _query("FROM raw.o ", "|> JOIN raw.d# d#", "", " "),
    "parentheses": _nested("SELECT ", "(", "1", ")", " AS x"),
    "parentheses_in_from": _nested("SELECT 1 AS x FROM ", "(", "raw.t", ")"),
    "parentheses_in_where": _nested("SELECT 1 AS x FROM raw.t WHERE ", "(", "a = 1", ")"),
    "conditions_in_parentheses": _nested("SELECT 1 AS x FROM raw.t WHERE ", "(a = 1 AND ", "b", ")"),
    "tuples": _nested("SELECT ", "(1, ", "2", ")", " AS x"),
    "queries_in_parentheses": _nested("", "(", "SELECT 1 AS x", ")"),
    "subqueries": _nested("SELECT 1 AS x FROM ", "(SELECT * FROM ", "raw.t", ")"),
    "scalar_subqueries": _nested("SELECT ", "(SELECT ", "1", ")", " AS x"),
    "subqueries_of_in": _nested("SELECT a FROM raw.t WHERE a IN ", "(SELECT a FROM raw.t WHERE a IN ", "(1)", ")"),
    "exists": _nested("SELECT a FROM raw.t WHERE ", "EXISTS (SELECT 1 FROM raw.u WHERE ", "true", ")"),
    "ctes": _query("WITH ", "c# AS (SELECT * FROM raw.t)", " SELECT 1 AS x FROM c0"),
    "nested_ctes": _nested("", "WITH c AS (", "SELECT 1 AS x", ") SELECT * FROM c"),
    "functions": _nested("SELECT ", "f(", "1", ")", " AS x"),
    "known_functions": _nested("SELECT ", "coalesce(a, ", "1", ")", " AS x FROM raw.t"),
    "casts": _nested("SELECT ", "CAST(", "1", " AS INT)", " AS x"),
    "short_casts": _nested("SELECT 1", "::INT", " AS x"),
    "lambdas": _nested("SELECT ", "transform(xs, x -> ", "x", ")", " AS x FROM raw.t"),
    "lambdas_of_two": _nested("SELECT ", "zip_with(xs, ys, (x, y) -> ", "x", ")", " AS x FROM raw.t"),
    "types": _nested("SELECT CAST(a AS ", "array<", "int", ">", ") AS x FROM raw.t"),
    "struct_types": _nested("SELECT CAST(a AS ", "struct<a: ", "int", ">", ") AS x FROM raw.t"),
    "map_types": _nested("SELECT CAST(a AS ", "map<string, ", "int", ">", ") AS x FROM raw.t"),
    "case": _query("SELECT CASE ", "WHEN a = # THEN #", " END AS x FROM raw.t", " "),
    "nested_case": _nested("SELECT ", "CASE WHEN a THEN 1 ELSE ", "2", " END", " AS x FROM raw.t"),
    "case_in_when": _nested("SELECT ", "CASE WHEN ", "true", " THEN true END", " AS x FROM raw.t"),
    "unions": _query("", "SELECT 1 AS x", "", " UNION ALL "),
    "unions_in_parentheses": _nested("", "(", "SELECT 1 AS x", " UNION SELECT 1)"),
    "except": _query("", "SELECT a FROM raw.t#", "", " EXCEPT "),
    "pipes": _query("FROM raw.t ", "|> WHERE a > #", "", " "),
    "pipes_extend": _query("FROM raw.t ", "|> EXTEND # AS a#", "", " "),
    "pipes_select": _query("FROM raw.t ", "|> SELECT a", "", " "),
    "pipes_union": _query("FROM raw.t ", "|> UNION ALL SELECT 1", "", " "),
    "open_brackets": _nested("SELECT ", "(", ""),
    "open_square_brackets": _nested("SELECT a", "[", ""),
    "open_braces": _nested("SELECT ", "{", ""),
    "open_functions": _nested("SELECT ", "f(", ""),
    "open_types": _nested("SELECT CAST(a AS ", "array<", ""),
    "open_subqueries": _nested("", "SELECT * FROM (", ""),
    "open_case": _nested("SELECT ", "CASE WHEN ", ""),
    "closing_brackets": _nested("SELECT 1", ")", ""),
    "brackets": _nested("SELECT a", "[", "0", "]", " AS x FROM raw.t"),
    "indexes": _nested("SELECT a", "[0]", "", "", " AS x FROM raw.t"),
    "arrays": _nested("SELECT ", "array(", "1", ")", " AS x"),
    "fields": _nested("SELECT a", ".b", "", "", " AS x FROM raw.t"),
    "variant_fields": _nested("SELECT a:b", ".c", "", "", " AS x FROM raw.t"),
    "lateral_views": _query("SELECT 1 AS x FROM raw.t ", "LATERAL VIEW explode(xs) l# AS y#", "", " "),
    "values": _query("VALUES ", "(#, 'a')"),
    "values_in_from": _query("SELECT * FROM VALUES ", "(#, 'a')", " AS v(a, b)"),
    "in_list": _query("SELECT a FROM raw.t WHERE a IN (", "#", ")"),
    "in_lists": _query("SELECT a FROM raw.t WHERE ", "a IN (1, 2)", "", " OR "),
    "columns": _query("SELECT ", "a# AS b#", " FROM raw.t"),
    "qualified_columns": _query("SELECT ", "raw.t.a# AS b#", " FROM raw.t"),
    "and": _query("SELECT a FROM raw.t WHERE ", "a = #", "", " AND "),
    "or": _query("SELECT a FROM raw.t WHERE ", "a = #", "", " OR "),
    "not": _nested("SELECT a FROM raw.t WHERE ", "NOT ", "a"),
    "plus": _query("SELECT ", "#", " AS x", " + "),
    "minus_signs": _nested("SELECT ", "- ", "1", "", " AS x"),
    "concat": _query("SELECT ", "'#'", " AS x", " || "),
    "like": _query("SELECT ", "a LIKE 'x'", " AS x FROM raw.t", " AND "),
    "between": _query("SELECT a FROM raw.t WHERE ", "a BETWEEN # AND 9", "", " AND "),
    "intervals": _query("SELECT ", "INTERVAL # DAY", " AS x", " + "),
    "windows": _query("SELECT ", "sum(a) OVER (PARTITION BY b ORDER BY c) AS s#", " FROM raw.t"),
    "named_windows": _query("SELECT sum(a) OVER w0 AS s FROM raw.t WINDOW ", "w# AS (ORDER BY a)"),
    "group_by": _query("SELECT 1 AS x FROM raw.t GROUP BY ", "a#"),
    "grouping_sets": _query("SELECT 1 AS x FROM raw.t GROUP BY GROUPING SETS (", "(a#)", ")"),
    "order_by": _query("SELECT 1 AS x FROM raw.t ORDER BY ", "a# DESC"),
    "hints": _query("SELECT /*+ ", "BROADCAST(t#)", " */ 1 AS x FROM raw.t"),
    "pivot": _query("SELECT * FROM raw.t PIVOT (sum(a) FOR b IN (", "# AS p#", "))"),
    "strings": _query("SELECT ", "'a'", " AS x", " "),
    "comments": _query("SELECT 1 AS x ", "/* # */", "", " "),
    "line_comments": _query("SELECT 1 AS x ", "-- #\n"),
    "semicolons": _query("SELECT 1 AS x ", ";", "", " "),
    "commas": _query("SELECT 1 AS x ", ",", "", " "),
    "dots": _nested("SELECT ", ".", "1", "", " AS x"),
}
"""By name of the construct: the query that repeats it ``n`` times. Not all are SQL."""


def calls_of(function: Callable[[], Any]) -> int:
    """How many Python functions a call calls: its work, the same on every machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls
