"""What a deployment does not allow is refused by the job, whatever the definitions took the text for."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding
from airflow_dynamic_tables.jobs.query import check_allowed
from tests.jobs.conftest import Plan
from tests.jobs.query.test_checking import known
from tests.support.jobs import refresh

pytestmark = pytest.mark.spark

CLOSED = Allowed(transform=False, java_calls=False, python_functions=False)

SCRIPTS = [
    "SELECT TRANSFORM(id) USING 'cat' AS (y STRING) FROM range(1)",
    "FROM (SELECT id FROM range(1)) MAP id USING 'cat' AS (y STRING)",
    "FROM (FROM range(1) SELECT id) a REDUCE a.id USING 'cat' AS (y STRING)",
    "WITH c AS (SELECT transform(id) USING 'cat' AS (y STRING) FROM range(1)) SELECT * FROM c",
    "SELECT 1 AS x WHERE EXISTS (SELECT TRANSFORM(id) USING 'cat' AS (y STRING) FROM range(1))",
    "SELECT 1 AS x, (SELECT max(y) FROM (SELECT TRANSFORM(id) USING 'cat' AS (y STRING) FROM range(1))) AS z",
]
CALLS = [
    "SELECT reflect('java.lang.Math', 'abs', -1) AS x",
    "SELECT `ReFlect`('java.lang.Math', 'abs', -1) AS x",
    "SELECT java_method('java.lang.Math', 'abs', -1) AS x",
    "SELECT system.builtin.try_reflect('java.lang.Math', 'abs', -1) AS x",
    "WITH a AS (WITH b AS (SELECT builtin.reflect('java.lang.Math', 'abs', -1) AS x) SELECT * FROM b) SELECT * FROM a",
    "SELECT id AS x FROM range(3) WHERE id IN (SELECT reflect('java.lang.Math', 'abs', -1))",
    "SELECT transform(array(1), x -> reflect('java.lang.Math', 'abs', x)) AS x",
    "SELECT max(id) OVER (ORDER BY reflect('java.lang.Math', 'abs', -1)) AS x FROM range(3)",
    "SELECT id AS x FROM range(3) |> WHERE id = reflect('java.lang.Math', 'abs', -1)",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.Math', 'abs', -1) AS x",
    "SELECT x FROM VALUES (reflect('java.lang.Math', 'abs', -1)) AS t(x)",
    "SELECT id AS x FROM range(int(reflect('java.lang.Math', 'abs', -1)))",
]
HARMLESS = [
    "SELECT transform(array(1), x -> x + 1) AS y",
    "SELECT 'reflect' AS reflect, struct(1 AS java_method) AS x",
    "SELECT a.id FROM range(3) a JOIN range(3) b USING (id) ORDER BY 1",
]


@pytest.mark.parametrize("query", SCRIPTS)
def test_scripts(spark: SparkSession, plan: Plan, query: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1, column \d+ of the query: starting programs .* is not allowed here"):
        refresh(spark, plan(query, allowed=CLOSED))
    check_allowed(spark, plan(query, allowed=Allowed(java_calls=False)))
    check_allowed(spark, plan(query, allowed=EVERYTHING))


@pytest.mark.parametrize("query", known(CALLS))
def test_calls_of_java(spark: SparkSession, plan: Plan, query: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1, column \d+ of the query: calling Java .* is not allowed here"):
        refresh(spark, plan(query, allowed=CLOSED))
    check_allowed(spark, plan(query, allowed=Allowed(transform=False)))


@pytest.mark.parametrize("query", HARMLESS)
def test_what_only_looks_like_it(spark: SparkSession, plan: Plan, query: str) -> None:
    check_allowed(spark, plan(query, allowed=CLOSED))


def test_predicates(spark: SparkSession, plan: Plan) -> None:
    expectation = Expectation("odd", Action.WARN, "reflect('java.lang.Math', 'abs', 1) = 1")
    with pytest.raises(ValueError, match="calling Java"):
        check_allowed(spark, plan("SELECT 1 AS x", expectations=(expectation,), allowed=CLOSED))


@pytest.mark.parametrize(("language", "words"), [("python", "calling Python functions of catalogs"), ("java", "calling Java")])
def test_functions_of_catalogs(spark: SparkSession, plan: Plan, language: str, words: str) -> None:
    function = FunctionBinding("lake.sales.f", "f_0", language, "os:getcwd", "STRING")
    with pytest.raises(ValueError, match=f"^function lake.sales.f: {words}"):
        refresh(spark, plan("SELECT f_0() AS x", functions=(function,), allowed=CLOSED))
