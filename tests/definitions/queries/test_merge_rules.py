"""Queries whose results for more rows of a source follow from the former result and the new rows."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from random import Random

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.key_sources import Obstacle, ObstacleCode
from airflow_dynamic_tables.core.refresh.merge_rules import Average, MergeKind, MergeRule
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.queries.text import merge_rule

FACTS = "lake.raw.facts"


def rule_of(query: str) -> MergeRule:
    rule = merge_rule(query, FACTS)
    assert isinstance(rule, MergeRule), rule
    return rule


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM lake.raw.facts",
        "SELECT ds, upper(name) AS name, n + 1 AS n FROM lake.raw.facts WHERE n > 0 ORDER BY n",
        "SELECT f.n, d.name FROM lake.raw.facts f JOIN lake.raw.dim d ON f.id = d.id",
        "SELECT f.n, d.name FROM lake.raw.dim d JOIN lake.raw.facts f USING (id)",
        "SELECT f.n, d.name FROM lake.raw.facts f LEFT JOIN lake.raw.dim d ON f.id = d.id",
        "SELECT f.n FROM lake.raw.facts f LEFT ANTI JOIN lake.raw.dim d ON f.id = d.id",
        "SELECT f.n, d.c FROM lake.raw.facts f JOIN (SELECT id, count(*) AS c FROM lake.raw.dim GROUP BY id) d ON f.id = d.id",
        "WITH big AS (SELECT * FROM lake.raw.facts WHERE n > 9) SELECT ds FROM (SELECT ds FROM big) x",
        "SELECT ds FROM lake.raw.facts UNION ALL SELECT ds FROM lake.raw.facts WHERE n > 1",
    ],
)
def test_new_rows_are_added(query: str) -> None:
    assert rule_of(query) == MergeRule(MergeKind.APPEND)


def test_other_parts_of_a_union_are_read_as_empty() -> None:
    query = "SELECT n FROM lake.raw.facts UNION ALL SELECT n FROM lake.raw.other o JOIN lake.raw.dim d USING (id)"
    assert rule_of(query).empty == {"lake.raw.other"}
    told = merge_rule(f"{query} UNION ALL SELECT f.n FROM lake.raw.facts f JOIN lake.raw.other o USING (id)", FACTS)
    assert isinstance(told, Obstacle)
    assert told.cause == "a part of UNION ALL without new rows reads a table of another part"


def test_groups_are_merged() -> None:
    rule = rule_of(
        "SELECT f.ds, substr(d.name, 1, 1) AS letter, count(*) AS c, sum(n) FILTER (WHERE n > 0) AS s, min(n) AS low, 'x' AS src "
        "FROM lake.raw.facts f LEFT JOIN lake.raw.dim d ON f.id = d.id WHERE n IS NOT NULL GROUP BY 1, substr(d.name, 1, 1)"
    )
    assert rule.kind is MergeKind.GROUPS
    assert rule.keys == ("ds", "letter", "src")
    assert rule.measures == (("c", "count"), ("s", "sum"), ("low", "min"))
    assert rule_of("SELECT ds, max(n) AS n FROM lake.raw.facts GROUP BY ALL").keys == ("ds",)
    assert rule_of("SELECT count(*) AS c FROM lake.raw.facts").keys == ()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY t DESC, n) AS r FROM lake.raw.facts) WHERE r = 1",
        (
            "SELECT id, t, n FROM (SELECT id, t, n, row_number() OVER (PARTITION BY id ORDER BY t DESC, n) r "
            "FROM lake.raw.facts) WHERE r = 1"
        ),
        (
            "WITH x AS (SELECT *, row_number() OVER (PARTITION BY id ORDER BY t DESC, n) r FROM lake.raw.facts WHERE n > 0) "
            "SELECT id, t, n FROM x WHERE r = 1"
        ),
        "SELECT * FROM lake.raw.facts QUALIFY row_number() OVER (PARTITION BY id ORDER BY t DESC, n) = 1",
        "SELECT *, row_number() OVER (PARTITION BY id ORDER BY t DESC, n) AS r FROM lake.raw.facts QUALIFY r = 1",
    ],
)
def test_the_newest_row_of_each_key_is_found_again(query: str) -> None:
    rule = rule_of(query)
    assert (rule.kind, rule.keys) == (MergeKind.NEWEST, ("id",))
    assert rule.order == (("t", "DESC NULLS LAST"), ("n", "ASC NULLS FIRST"))


def test_columns_are_followed_to_their_names_in_the_result() -> None:
    rule = rule_of(
        "SELECT k AS key, t FROM (SELECT f.id AS k, f.t, row_number() OVER (PARTITION BY f.id ORDER BY f.t) r "
        "FROM lake.raw.facts f JOIN lake.raw.dim d ON f.id = d.id) WHERE r = 1"
    )
    assert (rule.keys, rule.order) == (("key",), (("t", "ASC NULLS FIRST"),))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT DISTINCT n FROM lake.raw.facts", "DISTINCT depends on several rows; compute it in another table"),
        ("SELECT n FROM lake.raw.facts LIMIT 3", "LIMIT depends on several rows"),
        ("SELECT n FROM lake.raw.facts UNION SELECT n FROM lake.raw.other", "UNION depends on several rows"),
        ("SELECT n FROM lake.raw.facts EXCEPT SELECT n FROM lake.raw.other", "EXCEPT depends on several rows"),
        ("SELECT f.n FROM lake.raw.dim d LEFT JOIN lake.raw.facts f ON f.id = d.id", "LEFT JOIN"),
        ("SELECT f.n FROM lake.raw.dim d LEFT ANTI JOIN lake.raw.facts f ON f.id = d.id", "LEFT ANTI JOIN"),
        ("SELECT f.n FROM lake.raw.facts f FULL JOIN lake.raw.dim d ON f.id = d.id", "FULL JOIN"),
        ("SELECT f.n FROM lake.raw.facts f JOIN lake.raw.facts g ON f.id = g.id", "read more than once"),
        ("SELECT n FROM lake.raw.other WHERE n IN (SELECT n FROM lake.raw.facts)", "depends on several rows"),
        ("SELECT n, sum(n) OVER (PARTITION BY id) AS s FROM lake.raw.facts", "depends on several rows"),
        ("SELECT some_aggregate(n) AS s FROM lake.raw.facts", "depends on several rows, or is not known"),
        ("SELECT ds, count(DISTINCT n) AS c FROM lake.raw.facts GROUP BY ds", "depends on several rows"),
        ("SELECT ds, avg(n) AS a FROM lake.raw.facts GROUP BY ds", "AVG(n) is merged from its parts; add sum(n) and count(n)"),
        ("SELECT ds, avg(n) AS a, sum(n) AS s, count(*) AS c FROM lake.raw.facts GROUP BY ds", "add count(n) to the query"),
        (
            "SELECT avg(n) FILTER (WHERE n > 1) AS a, sum(n) AS s, count(n) FILTER (WHERE n > 1) AS c FROM lake.raw.facts",
            "add sum(n) FILTER(WHERE n > 1) to the query",
        ),
        ("SELECT avg(DISTINCT n) AS a, sum(n) AS s, count(n) AS c FROM lake.raw.facts", "DISTINCT n depends on several rows"),
        ("SELECT ds, avg(n) + 1 AS a, sum(n) AS s, count(n) AS c FROM lake.raw.facts GROUP BY ds", "depends on several rows"),
        ("SELECT ds, sum(n) + 1 AS a FROM lake.raw.facts GROUP BY ds", "depends on several rows"),
        ("SELECT sum(n) AS s FROM lake.raw.facts GROUP BY ds", "does not return"),
        ("SELECT substr(ds, 1, 7) AS ds, sum(n) AS s FROM lake.raw.facts GROUP BY ds", "does not return"),
        ("SELECT ds, sum(n) AS s FROM lake.raw.facts GROUP BY ds HAVING sum(n) > 3", "filtered or numbered"),
        ("SELECT ds, sum(n) AS s FROM lake.raw.facts GROUP BY ROLLUP (ds)", "ROLLUP"),
        (
            "SELECT ds, max(s) AS m FROM (SELECT ds, sum(n) AS s FROM lake.raw.facts GROUP BY ds, id) GROUP BY ds",
            "GROUP BY depends",
        ),
        ("SELECT * FROM lake.raw.facts QUALIFY rank() OVER (PARTITION BY id ORDER BY t) = 1", "ROW_NUMBER"),
        ("SELECT * FROM lake.raw.facts QUALIFY row_number() OVER (PARTITION BY id ORDER BY t) = 2", "more than their number"),
        ("SELECT * FROM lake.raw.facts QUALIFY row_number() OVER (ORDER BY t) = 1", "without a key"),
        ("SELECT id FROM lake.raw.facts QUALIFY row_number() OVER (PARTITION BY id ORDER BY t) = 1", "does not return"),
        (
            "SELECT -id AS id, t FROM lake.raw.facts QUALIFY row_number() OVER (PARTITION BY id ORDER BY t) = 1",
            "does not return",
        ),
        (
            (
                "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY t) r FROM lake.raw.facts) "
                "WHERE r = 1 AND n > 0"
            ),
            "more than their number",
        ),
        ("SELECT n FROM lake.raw.facts |> WHERE n > 1", "pipe"),
    ],
)
def test_other_queries_have_no_rule(query: str, why: str) -> None:
    told = merge_rule(query, FACTS)
    assert isinstance(told, Obstacle), told
    assert told.code is ObstacleCode.NOT_MERGED
    assert why in f"{told.cause}; {told.remedy}"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ds, count(*) AS c, avg(^n) AS a FROM lake.raw.facts GROUP BY ds",
        "SELECT ds, sum(n) AS s FROM lake.raw.facts GROUP BY ds, ^id",
        "SELECT f.n FROM lake.raw.dim d LEFT JOIN ^lake.raw.facts f ON f.id = d.id",
        "SELECT f.n FROM lake.raw.facts f JOIN ^lake.raw.facts g ON f.id = g.id",
        "SELECT ds, n FROM lake.raw.facts UNION ALL SELECT ds, max(^n) AS n FROM lake.raw.facts",
    ],
)
def test_an_obstacle_names_its_place(query: str) -> None:
    told = merge_rule(query.replace("^", ""), FACTS)
    assert isinstance(told, Obstacle)
    assert told.offset == query.index("^")


AVERAGE = "SELECT ds, avg(n) AS a, sum(n) AS s, count(n) AS c FROM lake.raw.facts GROUP BY ds"


def test_averages_are_merged_beside_their_parts() -> None:
    query = AVERAGE.replace("(n)", "(f.n) FILTER (WHERE f.n > 1)").replace("FROM lake.raw.facts", "FROM lake.raw.facts f")
    rule = merge_rule(query, FACTS, {FACTS: {"n": "smallint"}})
    assert isinstance(rule, MergeRule)
    assert rule.measures == (("s", "sum"), ("c", "count"))
    assert rule.averages == (Average("a", "s", "c", "smallint"),)


@pytest.mark.parametrize(
    ("kind", "total", "result", "why"),
    [
        ("int", "bigint", "double", "values of type int"),
        ("bigint", "bigint", "double", "values of type bigint"),
        ("", "bigint", "double", "values of type integers"),
        ("decimal(22,2)", "decimal(32,2)", "decimal(26,6)", "larger than decimal"),
        ("decimal(18,10)", "decimal(28,10)", "decimal(22,14)", "larger than decimal"),
        ("decimal(38,2)", "decimal(38,2)", "decimal(38,6)", "larger than decimal"),
        ("decimal(4,2)", "decimal(14,2)", "decimal(12,6)", "larger than decimal"),
    ],
)
def test_averages_that_may_differ_are_not_merged(kind: str, total: str, result: str, why: str) -> None:
    rule = merge_rule(AVERAGE, FACTS, {FACTS: {"n": kind}} if kind else {})
    assert isinstance(rule, MergeRule)
    columns = [Column("ds", "string"), Column("a", result), Column("s", total), Column("c", "bigint")]
    with pytest.raises(ValueError, match=f"the average a .*{why}"):
        rule.statement(columns, "a", "b")


@pytest.mark.spark
@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["decimal(12,2)", "decimal(3,3)", "decimal(21,0)", "decimal(21,9)", "tinyint", "smallint"])
def test_merged_averages_are_those_of_spark(spark: SparkSession, kind: str) -> None:
    """Groups of up to a hundred numbers, among them the largest, and small ones, whose averages are often half a digit."""
    chance = Random(kind)
    digits, scale = {"tinyint": (2, 0), "smallint": (4, 0)}.get(kind) or (int(each) for each in re.findall(r"\d+", kind))
    rows = []
    for group in range(300):
        for _ in range(chance.choice([1, 3, 7, 16, 96])):
            most = 10 ** chance.choice([digits, digits, 1]) - 1
            number = chance.choice([chance.randint(-most, most), chance.randint(0, most), most, None])
            value = None if number is None else Decimal(number).scaleb(-scale, Context(38))
            rows.append((group, chance.random() < 0.5, value))
    read = spark.createDataFrame(rows, f"ds int, is_new boolean, n decimal(38, {scale})")
    read.selectExpr("ds", "is_new", f"CAST(n AS {kind}) AS n").createOrReplaceTempView("facts")
    rule = merge_rule(AVERAGE, FACTS, {FACTS: {"n": kind}})
    assert isinstance(rule, MergeRule)
    query = AVERAGE.replace("lake.raw.", "")
    complete = spark.sql(query)
    for name, condition in (("former", "NOT is_new"), ("new", "is_new")):
        spark.sql(query.replace("FROM facts", f"FROM facts WHERE {condition}")).createOrReplaceTempView(name)
    merged = spark.sql(rule.statement([Column(*each) for each in complete.dtypes], "former", "new"))
    assert merged.dtypes == complete.dtypes
    assert sorted(map(str, merged.collect())) == sorted(map(str, complete.collect()))


@pytest.mark.parametrize("kind", ["float", "double", "array<int>"])
def test_inexact_values_are_not_merged(kind: str) -> None:
    columns = [Column("ds", "string"), Column("s", kind)]
    with pytest.raises(ValueError, match=f"the type {kind}"):
        rule_of("SELECT ds, sum(n) AS s FROM lake.raw.facts GROUP BY ds").statement(columns, "a", "b")
    with pytest.raises(ValueError, match=f"the type {kind}"):
        rule_of("SELECT ds, s FROM lake.raw.facts QUALIFY row_number() OVER (PARTITION BY s ORDER BY ds) = 1").statement(
            columns, "a", "b"
        )


def test_a_tolerance_permits_sums_and_averages_of_floating_point_numbers() -> None:
    rule = merge_rule(AVERAGE.replace("count(n) AS c", "count(n) AS c, max(n) AS m"), FACTS, {FACTS: {"n": "double"}})
    assert isinstance(rule, MergeRule)
    columns = [Column("ds", "string"), Column("a", "double"), Column("s", "double"), Column("c", "bigint"), Column("m", "double")]
    assert "CAST(sum(`s`) AS double)" in rule.statement(columns, "a", "b", is_tolerant=True)
    with pytest.raises(ValueError, match="permit that by float_tolerance"):
        rule.statement(columns, "a", "b")
    grouped = rule_of("SELECT n, sum(m) AS s FROM lake.raw.facts GROUP BY n")
    with pytest.raises(ValueError, match="key n has the type double"):
        grouped.statement([Column("n", "double"), Column("s", "double")], "a", "b", is_tolerant=True)


@pytest.mark.large
@pytest.mark.spark
def test_none_of_sparks_aggregates_counts_as_a_function_of_one_row(spark: SparkSession) -> None:
    """Without GROUP BY, a query that looks linear would return one row for the new rows."""
    names = [row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect() if row.function.isidentifier()]
    told = {name: spark.sql(f"DESCRIBE FUNCTION {name}").collect()[1][0] for name in names}
    aggregates = [name for name, text in told.items() if ".aggregate." in text]
    assert {"any", "some", "max_by", "listagg", "sum", "bool_or"} <= set(aggregates)
    for name in aggregates:
        for arguments in ("n", "n, id", "n, 1, 2"):
            grouped = merge_rule(f"SELECT ds, -{name}({arguments}) AS x FROM lake.raw.facts GROUP BY ds", FACTS)
            linear = merge_rule(f"SELECT {name}({arguments}) AS x FROM lake.raw.facts", FACTS)
            assert isinstance(grouped, Obstacle)
            assert isinstance(linear, Obstacle) or (linear.kind is MergeKind.GROUPS and name in ("count", "max", "min", "sum")), (
                name
            )
