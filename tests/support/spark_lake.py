"""A table over changing sources that Spark refreshes incrementally, to be compared with its query in full."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.contracts.runners.conftest import JobRunner
from tests.support.clock import Clock

TABLE = TableIdentifier("lake", "sales", "t")


@dataclass
class SparkLake(ABC):
    """Sources ``raw.…`` in folders of these names, and a table over them."""

    workspace: Workspace
    clock: Clock
    folder: Path
    spark: SparkSession
    keys: str
    query: str
    chance: Random
    writes: int = 0
    plans: list[RefreshPlan] = field(default_factory=list)

    @abstractmethod
    def definitions(self) -> str:
        """The YAML of the sources and the table."""

    @abstractmethod
    def read_sources(self, spark: SparkSession) -> None:
        """Register the rows that the sources have now, as views of their names without a database."""

    def request(self, **asked: Any) -> RefreshRequest:
        """Request the scheduled refresh of the next day."""
        path = self.folder / "sales.yaml"
        path.write_text(self.definitions())
        definitions = load_definitions(path)
        self.clock.time += timedelta(days=1)
        token = str(uuid4())
        request = RefreshRequest(definitions.tables[TABLE], definitions.sources, self.clock.time, token, token, is_scheduled=True)
        return replace(request, **asked)

    def refresh(self, **asked: Any) -> None:
        run(self.workspace, self.request(**asked), self.submit)

    def submit(self, plan: RefreshPlan) -> None:
        self.plans.append(plan)
        JobRunner(self.spark).run(plan, {})

    def rows(self) -> Counter[str]:
        return Counter(str(sorted(row.items())) for row in self.workspace.existing_table(TABLE).sample(10_000))

    def expected(self) -> Counter[str]:
        """The rows that the query returns now."""
        spark = self.spark.newSession()
        self.read_sources(spark)
        found = spark.sql(self.query.replace("raw.", "")).collect()
        return Counter(str(sorted(row.asDict().items())) for row in found)

    def check(self) -> None:
        """Check that the table equals its query."""
        assert self.rows() == self.expected(), [(plan.action, str(plan.partitions), plan.reason) for plan in self.plans]
