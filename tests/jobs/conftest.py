"""One Spark session for all tests that need nothing but Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.plan import RefreshPlan, SourceBinding

Plan = Callable[..., RefreshPlan]


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:  # noqa: ARG001 - it must be there
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan that writes into a stage of this test's own."""

    def make(query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
        values = {
            "token": "t1",
            "identifier": "lake.sales.t",
            "schedule_time": datetime(2024, 3, 1, tzinfo=UTC),
            "action": "FULL",
            "reason": "a test",
            "statement": query,
            "query": query,
            "stage": f"file://{tmp_path}/stage/t1",
            "format": "iceberg",
            "sources": sources,
        }
        return RefreshPlan(**{**values, **fields})

    return make
