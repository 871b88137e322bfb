"""What Spark takes a text for: one query, over what it may read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.query import check_query
from tests.support.jobs import refresh
from tests.support.spark_version import PINNED, SPARK_VERSION, since

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT 1",
    "VALUES (1, 2), (3, 4)",
    "TABLE t",
    "FROM t SELECT a",
    "FROM T |> WHERE a > 1 |> AGGREGATE sum(a) AS s GROUP BY b |> SET s = 1",
    "SELECT * FROM range(10) WHERE id IN (SELECT a FROM u)",
    "SELECT * FROM t TABLESAMPLE (10 PERCENT) LATERAL VIEW explode(a) x AS y",
    "SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a) PIVOT (sum(a) FOR b IN (1, 2))",
    "WITH a AS (SELECT * FROM t), b AS (WITH c AS (TABLE a) TABLE c) SELECT *, (SELECT max(x) FROM a) FROM b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT TRANSFORM(a) USING 'cat' AS (b) FROM t",
    "SELECT * FROM IDENTIFIER('t')",
    "SELECT /*+ BROADCAST(t) */ transform(a, x -> x + 1) FROM t GROUP BY ALL HAVING sum(b) > 1 ORDER BY ALL LIMIT 3",
]

NO_QUERIES = [
    ("CREATE DATABASE evil", "CreateNamespace"),
    ("DROP TABLE t", "DropTable"),
    ("SET a = 1", "SetCommand"),
    ("INSERT INTO t SELECT 1", "InsertIntoStatement"),
    ("FROM t INSERT INTO u SELECT a INSERT INTO v SELECT b", "InsertIntoStatement"),
    ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "InsertIntoStatement"),
    ("INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT 1", "InsertIntoDir"),
    (
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "UnresolvedExecuteImmediate" if SPARK_VERSION == PINNED else "ExecuteImmediate|PARSE_SYNTAX_ERROR",
    ),
    ("DESCRIBE t", "DescribeRelation"),
    ("CACHE TABLE t", "CacheTable"),
    ("SELECT * FROM IDENTIFIER('a' || 'b')", "IDENTIFIER"),
    ("SELECT * FROM t VERSION AS OF 3", "RelationTimeTravel"),
]

READS = [
    "SELECT * FROM secret",
    "SELECT * FROM parquet.`/secret`",
    "SELECT * FROM default.t",
    "SELECT 1 WHERE EXISTS (SELECT (SELECT 1 FROM secret))",
    "SELECT * FROM t ORDER BY (SELECT 1 FROM secret)",
    "VALUES ((SELECT max(a) FROM secret))",
    "SELECT * FROM range((SELECT max(a) FROM secret))",
    "SELECT * FROM some_function(TABLE(secret))",
    "FROM t |> JOIN secret USING (a)",
    "WITH a AS (SELECT * FROM secret), secret AS (SELECT 1) SELECT * FROM a",
    "WITH secret AS (SELECT * FROM secret) SELECT * FROM secret",
    "SELECT (WITH secret AS (SELECT 1) TABLE secret), (SELECT 1 FROM secret)",
]

HIDDEN = {
    "-- \\\nSELECT 1 AS a, '\nCREATE DATABASE evil -- ' AS b": "CreateNamespace",
    "-- \\\nSELECT 1 AS a, '\nSET spark.sql.evil = 1 -- ' AS b": "SetCommand",
    "SELECT /*+ REPARTITION(1) -- */ '\n */ n FROM secret -- ' AS n": "secret",
}
"""Texts that the definitions take for harmless queries: Spark ends comments elsewhere."""


_SINCE = {"|>": (4, 0), "RECURSIVE": (4, 0), "IDENTIFIER('t')": (4, 2)}


def known(queries: Iterable[str]) -> list[Any]:
    """The queries as parameters of tests, without those that an older Spark under test cannot parse."""
    return [
        pytest.param(query, marks=[since(*version) for words, version in _SINCE.items() if words in query]) for query in queries
    ]


@pytest.mark.parametrize("query", known(QUERIES))
def test_queries_over_their_own_views(spark: SparkSession, query: str) -> None:
    check_query(spark, query, ["t", "U"])


@pytest.mark.parametrize(("text", "what"), NO_QUERIES)
def test_what_is_no_query(spark: SparkSession, text: str, what: str) -> None:
    with pytest.raises(ValueError if SPARK_VERSION >= (4,) else (ValueError, ParseException), match=what):
        check_query(spark, text, ["t"])


@since(4, 1)
def test_a_script_is_no_query(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="CompoundBody"):
        check_query(spark, "BEGIN SELECT 1; END", ["t"])


@pytest.mark.parametrize("query", known(READS))
def test_what_reads_more_than_it_may(spark: SparkSession, query: str) -> None:
    with pytest.raises(ValueError, match="which is none of its declared tables"):
        check_query(spark, query, ["t"])


def test_two_statements_are_no_sql(spark: SparkSession) -> None:
    with pytest.raises(ParseException):
        check_query(spark, "SELECT 1; DROP TABLE t", ["t"])


@pytest.mark.parametrize("query", HIDDEN)
def test_what_only_spark_sees_is_not_run(spark: SparkSession, plan: Callable[..., RefreshPlan], query: str) -> None:
    spark.range(1).selectExpr("id AS n").createOrReplaceTempView("secret")
    planned = plan(query)
    with pytest.raises(ValueError, match=HIDDEN[query]):
        refresh(spark, planned)
    assert not Path(planned.data_location.removeprefix("file://")).exists()
    assert not spark.catalog.databaseExists("evil")
    assert spark.conf.get("spark.sql.evil", None) is None
    spark.catalog.dropTempView("secret")


def test_a_predicate_reads_nothing_else(spark: SparkSession, plan: Callable[..., RefreshPlan]) -> None:
    spark.range(1).createOrReplaceTempView("secret")
    expected = Expectation("odd", Action.WARN, "a IN (SELECT id FROM secret)")
    with pytest.raises(ValueError, match="secret, which is none"):
        refresh(spark, plan("SELECT 1 AS a", expectations=(expected,)))
    spark.catalog.dropTempView("secret")
