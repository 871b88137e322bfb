"""What spark-submit runs: ``main.py --plan URI``, with this package as ``--py-files`` zip and nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.plan import JobError, RefreshPlan
from airflow_dynamic_tables.jobs.batch import refresh
from airflow_dynamic_tables.jobs.files import read_text, write_text


def main(argv: Sequence[str] | None = None) -> int:
    """Run one refresh; what went wrong is written beside the stage, where the worker finds it on any deploy mode."""
    parser = argparse.ArgumentParser(description="Refresh one dynamic table into its stage.")
    parser.add_argument("--plan", required=True, metavar="URI", help="where the plan is")
    arguments = parser.parse_args(argv)
    spark = SparkSession.builder.getOrCreate()
    try:
        plan = RefreshPlan.from_json(read_text(spark, arguments.plan))
        try:
            result = refresh(spark, plan)
        except Exception as error:
            write_text(spark, plan.error_location, JobError(message(error), spark.sparkContext.applicationId).to_json())
            print(f"Refresh of {plan.identifier} failed: {message(error)}", file=sys.stderr)
            return 1
        print(f"Refresh of {plan.identifier}: {result.rows} rows, {len(result.files)} files, {result.bytes} bytes")
        return 0
    finally:
        spark.stop()


def message(error: BaseException) -> str:
    """Spark's own words for an error: the innermost cause, without its Java stack."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.toString()).split("\n\tat ")[0].strip()
    if isinstance(error, PySparkException):
        # Behind the first semicolon that ends a line Spark prints its query plan.
        return str(error).split("\n\nJVM stacktrace:")[0].split(";\n", 1)[0].strip()
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
