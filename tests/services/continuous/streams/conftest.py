"""A place for a stream, and Spark to run it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.batch import refresh
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.streaming import follow
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.streams import StreamSite


@pytest.fixture
def site(tmp_path: Path, empty_state: Path) -> StreamSite:
    return StreamSite(tmp_path, f"sqlite:///{shutil.copy(empty_state, tmp_path)}")


@pytest.fixture
def workspace(site: StreamSite) -> Iterator[Workspace]:
    with site.open() as opened:
        yield opened


@pytest.fixture
def submit(spark: SparkSession) -> Callable[[RefreshPlan], None]:
    """What runs a job, also one that is no stream."""

    def run_job(plan: RefreshPlan) -> None:
        if plan.stream is not None:
            follow(spark, plan, JvmDriver(spark))
        else:
            refresh(spark, plan, JvmDriver(spark))

    return run_job
