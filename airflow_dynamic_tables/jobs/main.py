"""What spark-submit runs: ``main.py --plan URI``, with this package as ``--py-files`` zip and nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.jobs.batch import refresh
from airflow_dynamic_tables.jobs.files import read_text, write_text
from airflow_dynamic_tables.jobs.messages import message


def main(argv: Sequence[str] | None = None) -> int:
    """Run one refresh; what went wrong is written beside the stage, where the worker finds it on any deploy mode."""
    parser = argparse.ArgumentParser(description="Refresh one dynamic table into its stage.")
    parser.add_argument("--plan", required=True, metavar="URI", help="where the plan is")
    arguments = parser.parse_args(argv)

    spark = SparkSession.builder.getOrCreate()
    try:
        return _run(spark, arguments.plan)
    finally:
        spark.stop()


def _run(spark: SparkSession, plan_location: str) -> int:
    try:
        plan = RefreshPlan.from_json(read_text(spark, plan_location))
    except Exception as error:
        # Where its stage is stands in the plan, so the log is all there is to speak to; the worker looks for "Error" in it.
        print(f"Error: the plan {plan_location} cannot be read: {message(error)}; refresh again.", file=sys.stderr)
        return 1
    try:
        result = refresh(spark, plan)
    except Exception as error:
        words = message(error)
        print(f"Refresh of {plan.identifier} failed: {words}", file=sys.stderr)
        failure = JobError(words, spark.sparkContext.applicationId, isinstance(error, SchemaEvolutionError))
        write_text(spark, plan.error_location, failure.to_json())
        return 1
    print(f"Refresh of {plan.identifier}: {result.rows} rows, {len(result.files)} files, {result.bytes} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
