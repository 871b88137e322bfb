"""The job in this process, and plans for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.jobs import batch
from airflow_dynamic_tables.jobs.drivers.jvm import JvmDriver


def refresh(spark: SparkSession, plan: RefreshPlan) -> RefreshResult:
    """Run the job of a plan as spark-submit's process would."""
    return batch.refresh(spark, plan, JvmDriver(spark))


def make_plan(folder: Path, query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
    """A plan that writes into a stage below a folder.

    :param fields: what is otherwise than in the plainest one.
    """
    values = {
        "token": "t1",
        "identifier": "lake.sales.t",
        "schedule_time": datetime(2024, 3, 1, tzinfo=UTC),
        "action": "FULL",
        "reason": "a test",
        "statement": query,
        "query": query,
        "stage": f"file://{folder}/stage/t1",
        "file_format": "parquet",
        "keys_in_files": True,
        "sources": sources,
    }
    return RefreshPlan(**{**values, **fields})
