"""Functions of catalogs in the Spark session of a refresh."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan
from airflow_dynamic_tables.jobs.messages import message
from tests.support.jobs import jar_of_triple, refresh

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]
MODULE = """
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import StringType

def double(x):
    return None if x is None else 2 * x

@pandas_udf(StringType())
def shout(texts):
    return texts.str.upper() + "!"
"""
QUERY = "SELECT `sales_double_0`(x) AS y FROM VALUES (1), (20), (NULL) AS t(x)"


@pytest.fixture(scope="module")
def py_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("py_files") / "shop_functions.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("shop_functions.py", MODULE)
    before = list(sys.path)
    yield f"file://{path}"
    sys.path[:] = before
    sys.modules.pop("shop_functions", None)


def values_of(spark: SparkSession, plan: RefreshPlan) -> set[object]:
    files = [file.path.removeprefix("file://") for file in refresh(spark, plan).files]
    return {value for file in files for value in pq.read_table(file, partitioning=None).column(0).to_pylist()}


def binding(code: str, returns: str | None, *py_files: str) -> FunctionBinding:
    return FunctionBinding("lake.sales.double", "sales_double_0", "python", code, returns, (), py_files)


def test_a_python_callable_runs_on_the_workers(spark: SparkSession, plan: Plan, py_file: str) -> None:
    planned = plan(QUERY, functions=(binding("shop_functions:double", "bigint", py_file),))
    assert values_of(spark, planned) == {2, 40, None}


def test_a_udf_knows_its_type_itself(spark: SparkSession, plan: Plan, py_file: str) -> None:
    query = "SELECT `sales_double_0`(x) AS y FROM VALUES ('a'), ('b') AS t(x)"
    assert values_of(spark, plan(query, functions=(binding("shop_functions:shout", None, py_file),))) == {"A!", "B!"}


@pytest.mark.parametrize(
    ("code", "returns", "words"),
    [
        ("no_such_module:f", "int", "no_such_module:f cannot be imported"),
        ("shop_functions:missing", "int", "shop_functions:missing cannot be imported"),
        ("shop_functions:double", None, "its property 'returns' is missing"),
    ],
)
def test_a_python_function_that_cannot_be_registered_is_named(
    spark: SparkSession, plan: Plan, py_file: str, code: str, returns: str | None, words: str
) -> None:
    with pytest.raises(ValueError, match=f"function lake.sales.double: {words}"):
        refresh(spark, plan(QUERY, functions=(binding(code, returns, py_file),)))


@pytest.fixture
def jar(tmp_path: Path) -> str:
    return jar_of_triple(tmp_path)


def test_a_java_class_out_of_a_jar(spark: SparkSession, plan: Plan, jar: str) -> None:
    triple = FunctionBinding("lake.sales.triple", "sales_triple_0", "java", "com.example.Triple", "bigint", (jar,))
    query = "SELECT `sales_triple_0`(x) AS y FROM VALUES (1), (20), (NULL) AS t(x)"
    assert values_of(spark, plan(query, functions=(triple,))) == {3, 60, None}


def test_a_java_class_that_is_missing_is_named(spark: SparkSession, plan: Plan) -> None:
    missing = FunctionBinding("lake.sales.f", "sales_f_0", "java", "com.example.Missing", "int")
    with pytest.raises(Exception, match=r"com\.example\.Missing") as raised:
        refresh(spark, plan("SELECT `sales_f_0`(1) AS y", functions=(missing,)))
    assert "com.example.Missing" in message(raised.value)
