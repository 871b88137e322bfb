"""Every runner joins here with a factory; the contract suite then runs over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.registry import runner_for
from tests.support.jobs import make_plan

SMALL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""What makes a Spark of a test's own start fast and listen to nobody; a server has it already."""


@dataclass
class Bench:
    """Runners of one kind, and what they said."""

    address: str
    conf: Mapping[str, str]
    lines: list[str] = field(default_factory=list)

    def runner(self, **conf: str) -> Runner:
        """A new one."""
        return runner_for(SparkSettings(conf={**self.conf, **conf}), self.address, self.lines.append)


@pytest.fixture(params=["spark-submit", "spark-connect"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "spark-connect":
        return Bench(request.getfixturevalue("connect_server").url, {})
    request.getfixturevalue("java")
    return Bench("local[2]", {**SMALL, "spark.sql.shuffle.partitions": "2"})


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., RefreshPlan]:
    """A plan that stands beside its stage, as a worker leaves it."""

    def make(query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
        made = make_plan(tmp_path, query, *sources, **fields)
        write_text(made.plan_location, made.to_json())
        return made

    return make
