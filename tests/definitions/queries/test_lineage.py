"""Which partitions of the tables a partition key of a query is derived from, and what hides it."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.key_sources import Call, Formula, KeyColumn, Lineage, Literal, ObstacleCode
from airflow_dynamic_tables.definitions.queries.text import lineage

TYPES = {
    **{f"lake.raw.{table}": {"ds": "string", "id": "int", "n": "int"} for table in ("o", "c", "d")},
    "LAKE.raw.o": {"ds": "string"},
    "lake.raw.y": {"day": "date", "n": "int"},
    "lake.raw.ymd": {"year": "int", "month": "int", "day": "int"},
}
MAPPED = {
    "SELECT o.ds, sum(x) AS n FROM `lake`.`raw`.`o` AS o JOIN lake.raw.c AS c ON o.id = c.id GROUP BY o.ds": "o:ds",
    "SELECT ds, n FROM lake.raw.o WHERE n > 1": "o:ds",
    "SELECT * FROM lake.raw.o": "o:ds",
    "SELECT o.* FROM lake.raw.o o JOIN lake.raw.c c ON o.id = c.id": "o:ds",
    "SELECT DISTINCT ds FROM lake.raw.o": "o:ds",
    "SELECT ds, y FROM lake.raw.o LATERAL VIEW explode(x) AS y": "o:ds",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY ALL": "o:ds",
    "SELECT ds, max(n) AS n FROM lake.raw.o GROUP BY 1 HAVING count(*) > 1 ORDER BY 2": "o:ds",
    # joins
    "SELECT o.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.id = c.id": "o:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.id = c.id AND (c.ds = o.ds AND c.n > 1)": "o:ds c:ds",
    "SELECT c.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds": "o:ds c:ds",
    "SELECT o.ds FROM lake.raw.o o LEFT OUTER JOIN lake.raw.c c ON (o.ds = c.ds)": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o o LEFT ANTI JOIN lake.raw.c c USING (id, ds)": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o JOIN lake.raw.c USING (ds) JOIN lake.raw.d USING (ds)": "o:ds c:ds d:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds LEFT JOIN lake.raw.d d ON d.ds = c.ds": "o:ds c:ds d:ds",
    "SELECT o.ds FROM lake.raw.o o, lake.raw.c c WHERE o.ds = c.ds": "o:ds c:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.o p ON o.ds = p.ds": "o:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds <=> upper(c.ds)": "o:ds c:upper(ds)",
    "SELECT o.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON c.id = o.id JOIN lake.raw.d d ON d.ds = o.ds": "o:ds d:ds",
    # the condition of a LEFT JOIN restricts the rows of its table only
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.id = c.id LEFT JOIN lake.raw.d d ON d.n = 1 AND c.ds = o.ds": "o:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.id = c.id LEFT JOIN lake.raw.d d ON d.ds = o.ds AND c.ds = d.ds": (
        "o:ds d:ds"
    ),
    # RIGHT and FULL joins
    "SELECT c.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.ds = c.ds": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o o RIGHT OUTER JOIN lake.raw.c c USING (ds)": "o:ds c:ds",
    "SELECT c.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.id = c.id": "c:ds",
    "SELECT d.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds RIGHT JOIN lake.raw.d d ON c.ds = d.ds": "o:ds c:ds d:ds",
    "SELECT d.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.ds = c.ds RIGHT JOIN lake.raw.d d ON c.ds = d.ds": "c:ds d:ds",
    "SELECT c.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.id = c.id JOIN lake.raw.d d ON d.ds = c.ds": "c:ds d:ds",
    "SELECT coalesce(c.ds, o.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.ds = c.ds AND o.id = c.id": "o:ds c:ds",
    "SELECT nvl(o.ds, c.ds) AS ds, 1 FROM lake.raw.o o FULL OUTER JOIN lake.raw.c c ON o.ds = c.ds GROUP BY 1": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o FULL JOIN lake.raw.c USING (ds, id) FULL JOIN lake.raw.d USING (ds, id)": "o:ds c:ds d:ds",
    "SELECT left(ds, 7) AS ds FROM lake.raw.o FULL JOIN lake.raw.c USING (ds)": "o:left(ds, 7) c:left(ds, 7)",
    (
        "SELECT coalesce(o.ds, c.ds, d.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.ds = c.ds "
        "FULL JOIN lake.raw.d d ON d.ds = coalesce(o.ds, c.ds)"
    ): "o:ds c:ds d:ds",
    "SELECT coalesce(o.ds, c.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c USING (ds) LEFT JOIN lake.raw.d d USING (id)": (
        "o:ds c:ds"
    ),
    (
        "SELECT concat(coalesce(a.year, b.year), '-', coalesce(a.month, b.month)) AS ds FROM lake.raw.ymd a "
        "FULL JOIN lake.raw.ymd b ON a.year = b.year AND a.month = b.month"
    ): "ymd:concat(year, '-', month)",
    # queries in FROM
    "WITH o AS (SELECT * FROM lake.raw.o) SELECT ds FROM o": "o:ds",
    "WITH a AS (SELECT ds FROM lake.raw.o), b AS (SELECT ds AS t FROM a) SELECT t AS ds FROM b": "o:ds",
    "WITH a(t) AS (SELECT ds FROM lake.raw.o) SELECT x.t AS ds FROM a AS x JOIN a AS y ON x.t = y.t": "o:ds",
    "SELECT ds FROM (SELECT ds, max(n) AS n FROM lake.raw.o GROUP BY ds) WHERE n > 1": "o:ds",
    "SELECT x.ds FROM (SELECT ds FROM (SELECT ds FROM lake.raw.o)) AS x JOIN lake.raw.c c ON c.ds = x.ds": "o:ds c:ds",
    "SELECT o.ds FROM lake.raw.o o JOIN (SELECT id FROM lake.raw.c LIMIT 3) c ON c.id = o.id": "o:ds",
    "SELECT ds FROM lake.raw.o WHERE n > (SELECT avg(n) FROM lake.raw.c)": "o:ds",
    "WITH a AS (SELECT ds, id FROM lake.raw.o) SELECT x.k AS ds FROM a AS x(k, i) JOIN a AS y(i, k) ON y.k = x.k": "",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT upper(ds) FROM LAKE.raw.o": "o:ds,upper(ds) LAKE.raw.o:ds,upper(ds)",
    "SELECT o.ds FROM lake.raw.o o JOIN LAKE.raw.o c ON o.id = c.id": "",
    # subqueries outside FROM
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT ds FROM lake.raw.c WHERE n > 1)": "o:ds c:ds",
    "SELECT left(ds, 7) AS ds FROM lake.raw.o WHERE (id, ds) IN (SELECT id, ds FROM lake.raw.c)": "o:left(ds, 7) c:left(ds, 7)",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT ds FROM lake.raw.c UNION ALL SELECT ds FROM lake.raw.d)": "o:ds c:ds d:ds",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT max(ds) FROM lake.raw.c)": "o:ds",
    "SELECT column0 AS ds FROM (SELECT ds AS column0, id FROM lake.raw.o) WHERE id IN (SELECT id FROM lake.raw.c)": "o:ds",
    "SELECT left(x, 7) AS ds FROM (SELECT ds AS x FROM lake.raw.o) WHERE x IN (SELECT ds FROM lake.raw.c)": (
        "o:left(ds, 7) c:left(ds, 7)"
    ),
    "SELECT ds FROM lake.raw.o WHERE ds NOT IN (SELECT ds FROM lake.raw.c)": "o:ds",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT ds FROM lake.raw.c) OR n > 1": "o:ds",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT day FROM lake.raw.y)": "o:ds",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT ds FROM lake.raw.c WHERE c.id = o.id)": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o WHERE ds IN (SELECT o.ds FROM lake.raw.c)": "o:ds",
    "SELECT ds FROM lake.raw.o WHERE EXISTS (SELECT 1 FROM lake.raw.c WHERE c.ds = o.ds)": "o:ds",
    # set operations
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM lake.raw.c": "o:ds c:ds",
    "SELECT 1, ds FROM lake.raw.o UNION (SELECT n, ds FROM lake.raw.c) UNION SELECT 1, ds FROM lake.raw.d": "o:ds c:ds d:ds",
    "SELECT n + 1, ds FROM lake.raw.o UNION ALL SELECT -n, ds FROM lake.raw.c": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT upper(ds) FROM lake.raw.c": "o:ds c:upper(ds)",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT upper(ds) FROM lake.raw.o": "o:ds,upper(ds)",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT c.ds FROM lake.raw.c c JOIN lake.raw.o d ON c.id = d.id": "c:ds",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT '2024-01-01'": "o:ds",
    "SELECT ds FROM lake.raw.o EXCEPT SELECT ds FROM lake.raw.c": "o:ds c:ds",
    "SELECT ds FROM lake.raw.o UNION ALL (SELECT ds FROM lake.raw.c LIMIT 3)": "o:ds",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM (SELECT * FROM lake.raw.c)": "o:ds c:ds",
    # windows
    "SELECT ds, row_number() OVER (PARTITION BY id, ds ORDER BY n) AS n FROM lake.raw.o": "o:ds",
    "SELECT ds, n FROM lake.raw.o QUALIFY row_number() OVER w = 1 WINDOW w AS (PARTITION BY ds ORDER BY n)": "o:ds",
    # roll-ups
    "SELECT upper(ds) AS ds FROM lake.raw.o": "o:upper(ds)",
    "SELECT substr(ds, 1, 7) AS ds, count(*) FROM lake.raw.o GROUP BY 1": "o:substring(ds, 1, 7)",
    "SELECT date_format(day, 'yyyy-MM') AS ds FROM lake.raw.y": "y:date_format(cast_timestamp(day), '%Y-%mstrict')",
    "SELECT year || '-' || lpad(month, 2, '0') AS ds FROM lake.raw.ymd": "ymd:concat(year, '-', lpad(month, 2, '0'))",
    "SELECT left(x, 7) AS ds FROM (SELECT CAST(day AS STRING) AS x FROM lake.raw.y)": "y:left(cast_string(day), 7)",
    # ranges of days
    "SELECT o.day AS ds FROM lake.raw.y o, lake.raw.y c WHERE c.day BETWEEN date_sub(o.day, 6) AND o.day": (
        "y:day,days(day, 0, 6)"
    ),
    "SELECT o.ds FROM lake.raw.o o LEFT SEMI JOIN lake.raw.c c ON c.ds > date_sub(o.ds, 3) AND c.ds < o.ds": (
        "o:ds c:day_texts(ds, 1, 2)"
    ),
    "SELECT o.day AS ds FROM lake.raw.y o JOIN lake.raw.c c ON c.ds = o.day - INTERVAL 1 DAY": "y:day c:days(ds, 1, 1)",
    "SELECT trunc(o.day, 'MM') AS ds FROM lake.raw.y o, lake.raw.c c WHERE datediff(o.day, c.ds) BETWEEN 0 AND 2": (
        "y:trunc('MM', day) c:trunc('MM', days(ds, 0, 2))"
    ),
}
HIDDEN = {
    "SELECT reverse(ds) AS ds FROM lake.raw.o": "FUNCTION@15 o",
    "SELECT date_trunc(id, ds) AS ds FROM lake.raw.o": "FUNCTION@18 o",
    "SELECT trunc(ds, id) AS ds FROM lake.raw.o": "FUNCTION@13 o",
    "SELECT * FROM lake.raw.o JOIN lake.raw.c USING (ds)": "STAR@14 o c",
    "SELECT ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds": "NO_COLUMN@7 o c",
    "SELECT x.ds FROM lake.raw.o": "NO_COLUMN@7 o",
    "SELECT '1' AS ds FROM lake.raw.o": "SEVERAL_TABLES@14 o",
    "SELECT o.ds || c.ds AS ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds": "SEVERAL_TABLES@7 o c",
    "SELECT c.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.ds = c.ds": "JOIN@40 o c",
    "SELECT o.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.id = c.id": "JOIN@41 o c",
    "SELECT o.ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.ds = c.ds": "JOIN@40 o c",
    "SELECT o.ds FROM lake.raw.o o FULL JOIN lake.raw.c c USING (ds)": "JOIN@40 o c",
    "SELECT coalesce(o.ds, c.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.id = c.id": "JOIN@62 o c",
    "SELECT coalesce(o.ds, c.day) AS ds FROM lake.raw.o o FULL JOIN lake.raw.y c ON o.ds = c.day": "JOIN@63 o y",
    "SELECT coalesce(o.ds, c.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.ds <=> c.ds": "JOIN@62 o c",
    "SELECT coalesce(o.ds, c.ds) AS ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.ds = c.ds": "JOIN@16 o c",
    "SELECT coalesce(o.ds, c.ds) AS ds FROM lake.raw.o o FULL JOIN lake.raw.c c USING (ds) RIGHT JOIN lake.raw.d d USING (ds)": (
        "JOIN@97 o c d"
    ),
    "SELECT coalesce(ds, '2024-01-01') AS ds FROM lake.raw.o": "FUNCTION@16 o",
    "SELECT c.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds RIGHT JOIN lake.raw.d d ON c.ds = d.ds": "JOIN@74 o c d",
    "SELECT ds FROM lake.raw.o NATURAL JOIN lake.raw.c": "NO_COLUMN@7 o c",
    "SELECT ds, lag(n) OVER (ORDER BY ds) AS n FROM lake.raw.o": "WINDOW@15 o",
    "SELECT ds, n FROM lake.raw.o ORDER BY n LIMIT 3": "LIMIT@7 o",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY ROLLUP (ds)": "GROUPING@56 o",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY GROUPING SETS ((ds), ())": "GROUPING@64 o",
    "SELECT max(ds) AS ds FROM lake.raw.o": "FUNCTION@11 o",
    "SELECT ds FROM lake.raw.o WHERE n > (SELECT avg(n) FROM lake.raw.o)": "SUBQUERY@48 o",
    "WITH a AS (SELECT * FROM lake.raw.o) SELECT ds FROM a WHERE EXISTS (SELECT 1 FROM a b WHERE b.n = a.n)": "SUBQUERY@82 o",
    "SELECT ds, n FROM lake.raw.o UNION ALL SELECT n, ds FROM lake.raw.o": "TYPES@7 o",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT day FROM lake.raw.y": "TYPES@7 o y",
    "SELECT ds FROM lake.raw.o UNION ALL BY NAME SELECT ds FROM lake.raw.c": "FORM@7 o c",
    "SELECT * FROM lake.raw.o UNION ALL SELECT * FROM lake.raw.c": "STAR@14 o c",
    "SELECT inline(x), ds FROM lake.raw.o UNION ALL SELECT 1 AS a, ds FROM lake.raw.c": "STAR@14 o c",
    "SELECT ds FROM lake.raw.o TABLESAMPLE (10 ROWS)": "FORM@15 o",
    "SELECT ds FROM lake.raw.o |> WHERE n > 1": "FORM@0 ",
    "SELECT ((": "UNREAD@0 ",
}


def shown(formula: Formula) -> str:
    if isinstance(formula, KeyColumn):
        return formula.name
    if isinstance(formula, Literal):
        return repr(formula.value)
    return f"{formula.function}({', '.join(map(shown, formula.arguments))})"


def short(table: str) -> str:
    return table.removeprefix("lake.raw.")


def mapped(found: Lineage) -> str:
    return " ".join(f"{short(table)}:{','.join(map(shown, own.formulas))}" for table, own in found.sources.items())


@pytest.mark.parametrize(("query", "expected"), MAPPED.items())
def test_tables_that_determine_the_key(query: str, expected: str) -> None:
    assert mapped(lineage(query, "DS", TYPES)) == expected


@pytest.mark.parametrize(("query", "expected"), HIDDEN.items())
def test_obstacles_have_a_code_and_a_place(query: str, expected: str) -> None:
    found = lineage(query, "ds", TYPES)
    assert not found.sources
    (obstacle,) = found.obstacles
    assert f"{obstacle.code}@{obstacle.offset} {' '.join(map(short, obstacle.sources))}" == expected
    assert obstacle.cause
    assert obstacle.remedy


def test_types_decide_what_is_the_same() -> None:
    """Spark converts values of different types before it compares or unites them."""
    joined = "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds"
    assert mapped(lineage(joined, "ds", {})) == "o:ds"
    assert mapped(lineage(joined, "ds", {}, assumed=True)) == "o:ds c:ds"
    assert (
        mapped(lineage(joined, "ds", {"lake.raw.o": {"ds": "date"}, "lake.raw.c": {"ds": "string"}})) == "o:ds c:days(ds, 0, 0)"
    )
    united = "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM lake.raw.c"
    assert not lineage(united, "ds", {}).sources


@pytest.mark.parametrize(
    ("setting", "value", "is_known"),
    [
        ("spark.sql.caseSensitive", "true", False),
        ("spark.sql.caseSensitive", "false", True),
        ("spark.sql.legacy.setopsPrecedence.enabled", "true", False),
        ("spark.sql.ansi.enabled", "false", True),
        ("spark.sql.parquet.mergeSchema", "true", True),
    ],
)
def test_settings_that_may_change_the_meaning(setting: str, value: str, is_known: bool) -> None:
    found = lineage("SELECT ds FROM lake.raw.o", "ds", TYPES, {setting: value})
    assert bool(found.sources) is is_known
    assert [obstacle.code for obstacle in found.obstacles] == ([] if is_known else [ObstacleCode.SETTING])


def test_many_readings_of_one_table_are_no_trouble() -> None:
    union = " UNION ALL ".join(["SELECT ds FROM lake.raw.o"] * 1_000)
    assert mapped(lineage(union, "ds", TYPES)) in ("o:ds", "")
    doubled = ", ".join(f"t{n} AS (SELECT ds FROM t{n - 1} UNION ALL SELECT ds FROM t{n - 1})" for n in range(1, 30))
    query = f"WITH t0 AS (SELECT ds FROM lake.raw.o), {doubled} SELECT ds FROM t29"
    assert mapped(lineage(query, "ds", TYPES)) == "o:ds"
    grown = ", ".join(f"t{n} AS (SELECT ds || ds AS ds FROM t{n - 1})" for n in range(1, 30))
    found = lineage(f"WITH t0 AS (SELECT ds FROM lake.raw.o), {grown} SELECT ds FROM t29", "ds", TYPES)
    assert [obstacle.code for obstacle in found.obstacles] == [ObstacleCode.FORM]


def test_a_call_is_a_formula() -> None:
    found = lineage("SELECT date_sub(ds, 1) AS ds FROM lake.raw.o", "ds", TYPES).sources["lake.raw.o"]
    assert found.formulas == (Call("date_add", (KeyColumn("ds", type="string"), Literal(-1))),)
