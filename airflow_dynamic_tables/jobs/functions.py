"""Registration of catalog functions that the query calls, as temporary functions."""

from __future__ import annotations

from importlib import import_module

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding
from airflow_dynamic_tables.jobs.drivers.base import Driver


def register(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    """Register the function that the plan's query calls.

    :raises ValueError: names code that cannot be found.
    """
    if binding.language == "python":
        _register_python(spark, binding, driver)
    else:
        _register_java(spark, binding, driver)


def _register_python(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    for uri in binding.py_files:
        driver.add_python_file(uri)
    module, _, name = binding.code.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, SystemExit) as error:
        raise ValueError(f"function {binding.identifier}: {binding.code} cannot be imported ({error})") from error
    if hasattr(function, "returnType"):  # made by udf() or pandas_udf(), with a declared return type
        spark.udf.register(binding.function, function)
    elif binding.returns is None:
        raise ValueError(f"function {binding.identifier}: its property 'returns' is missing; name the type of its result")
    else:
        spark.udf.register(binding.function, function, binding.returns)


def _register_java(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    for uri in binding.jars:
        driver.add_jar(uri)
    try:
        spark.udf.registerJavaFunction(binding.function, binding.code, binding.returns)
    except AnalysisException:
        # Not a UDF of Spark's interfaces: a Hive function or an aggregate.
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {quote(binding.function)} AS '{binding.code}'")
