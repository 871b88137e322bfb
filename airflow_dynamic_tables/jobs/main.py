"""What spark-submit runs: ``main.py --plan URI``, with this package as ``--py-files`` zip and nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan
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
        plan = RefreshPlan.from_json(read_text(spark, arguments.plan))
        try:
            result = refresh(spark, plan)
        except Exception as error:
            words = message(error)
            print(f"Refresh of {plan.identifier} failed: {words}", file=sys.stderr)
            write_text(spark, plan.error_location, JobError(words, spark.sparkContext.applicationId).to_json())
            return 1
        print(f"Refresh of {plan.identifier}: {result.rows} rows, {len(result.files)} files, {result.bytes} bytes")
        return 0
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
