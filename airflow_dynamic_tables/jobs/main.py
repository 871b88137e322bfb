"""The application of spark-submit: ``main.py --plan URI``, with this package as ``--py-files`` zip and no other dependencies.

``main.py --tests URI`` runs unit tests of queries instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from py4j.java_gateway import JVMView
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession

from airflow_dynamic_tables.core.query_test_plans import QueryTestPlans, outcomes_location
from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.jobs.batch import refresh
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.files import exists, list_files, read_text, write_text
from airflow_dynamic_tables.jobs.messages import message
from airflow_dynamic_tables.jobs.query import JvmSettings, SessionSettings, check_allowed, check_query
from airflow_dynamic_tables.jobs.query_tests import run_query_tests
from airflow_dynamic_tables.jobs.streaming import follow


class JvmDriver(Driver):
    """Spark in the JVM of this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def application_id(self) -> str:
        return str(self._spark.sparkContext.applicationId)

    @property
    def settings(self) -> SessionSettings:
        return JvmSettings(self._spark)

    def write_text(self, uri: str, text: str) -> None:
        write_text(self._spark, uri, text)

    def list_files(self, uri: str) -> list[tuple[str, int]]:
        return list_files(self._spark, uri)

    def check_query(self, query: str, views: Collection[str]) -> None:
        check_query(self._spark, query, views)

    def check_allowed(self, plan: RefreshPlan) -> None:
        check_allowed(self._spark, plan)

    def count_files(self, frame: DataFrame) -> int:
        """Count every read of a file; a frame's ``inputFiles`` would only return distinct files."""
        relation: Any = frame._jdf.queryExecution().analyzed().relation()
        return len(relation.location().inputFiles())

    @property
    def how_to_add_jars(self) -> str:
        return "name its jar in the definition, for example spark: {packages: 'org.postgresql:postgresql:42.7.7'}"

    def add_python_file(self, uri: str) -> None:
        self._spark.sparkContext.addPyFile(uri)

    def add_jar(self, uri: str) -> None:
        self._spark.sql(f"ADD JAR {uri}")

    def password(self, variable: str) -> str | None:
        return os.environ.get(variable)

    def tell(self, line: str) -> None:
        print(line, flush=True)


_LOG_LEVEL = "spark.log.level"
"""A setting that overrides every configuration of log4j."""

_PLAN_SECONDS = 5
"""Seconds between two looks for the plan."""

_SPARKS_OWN_LOG = "org/apache/spark/log4j2-defaults.properties"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one refresh; an error is written beside the stage, where the worker finds it in any deploy mode."""
    parser = argparse.ArgumentParser(description="Refresh one dynamic table into its stage.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", metavar="URI", help="where the plan is")
    what.add_argument("--tests", metavar="URI", help="where the plans of unit tests are")
    arguments = parser.parse_args(argv)

    spark = _session()
    if arguments.plan:
        threading.Thread(target=_end_without, args=(spark, arguments.plan), daemon=True).start()
    try:
        return run(spark, arguments.plan) if arguments.plan else run_tests(spark, arguments.tests)
    finally:
        spark.stop()


def _session() -> SparkSession:
    SparkContext._ensure_initialized()  # otherwise the settings of spark-submit are not available yet
    builder = SparkSession.builder
    if not SparkConf().contains(_LOG_LEVEL) and _has_default_log(SparkContext._jvm):
        builder = builder.config(_LOG_LEVEL, "WARN")
    spark = builder.getOrCreate()
    context = spark.sparkContext
    pages = f", shown at {context.uiWebUrl}" if context.uiWebUrl else ""
    print(f"Spark application {context.applicationId} of {context.master}{pages}", flush=True)
    return spark


def _has_default_log(jvm: JVMView) -> bool:
    location = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource().getLocation()
    return location is None or str(location).endswith(_SPARKS_OWN_LOG)


def _end_without(spark: SparkSession, plan_location: str) -> None:
    """End this process when its plan is deleted, as the stage of a refresh that was stopped is.

    A driver on the cluster does not end with spark-submit, and one on the worker's machine does not end with the worker.
    """
    while True:
        time.sleep(_PLAN_SECONDS)
        with suppress(Exception):  # of a file system that does not answer
            if not exists(spark, plan_location):
                print(f"The plan {plan_location} was deleted: the refresh was stopped.", file=sys.stderr, flush=True)
                os._exit(1)


def run(spark: SparkSession, plan_location: str) -> int:
    """Run the plan at a URI; an error is written beside its stage.

    :return: the exit code.
    """
    try:
        plan = RefreshPlan.from_json(read_text(spark, plan_location))
    except Exception as error:
        # The stage is named in the plan, so the error can only be logged; the worker looks for "Error" in the log.
        print(f"Error: the plan {plan_location} cannot be read: {message(error)}; refresh again.", file=sys.stderr)
        return 1
    if exists(spark, plan.error_location):  # YARN starts a driver again that failed
        print(f"Refresh of {plan.identifier} has failed before: see {plan.error_location}", file=sys.stderr)
        return 1
    try:
        done = _done(spark, plan)
    except Exception as error:
        words = message(error)
        print(f"Refresh of {plan.identifier} failed: {words}", file=sys.stderr)
        failure = JobError(words, spark.sparkContext.applicationId, isinstance(error, SchemaEvolutionError))
        write_text(spark, plan.error_location, failure.to_json())
        return 1
    print(f"Refresh of {plan.identifier}: {done}", flush=True)
    return 0


def run_tests(spark: SparkSession, location: str) -> int:
    """Run the unit tests at a URI, and write their outcomes beside it.

    :return: the exit code, which does not depend on the tests' outcomes.
    """
    outcomes = run_query_tests(spark, QueryTestPlans.from_json(read_text(spark, location)), JvmDriver(spark))
    write_text(spark, outcomes_location(location), outcomes.to_json())
    return 0


def _done(spark: SparkSession, plan: RefreshPlan) -> str:
    if plan.stream is not None:
        follow(spark, plan, JvmDriver(spark))
        return "the stream has stopped"
    result = refresh(spark, plan, JvmDriver(spark))
    return f"{result.rows} rows, {len(result.files)} files, {result.bytes} bytes"


if __name__ == "__main__":
    sys.exit(main())
