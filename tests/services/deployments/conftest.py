"""Definitions that are written anew, deployed, and filled without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Difference
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import Days, write_days

VISITS = TableIdentifier("lake", "web", "visits")
QUERY = "SELECT ds, n, extra FROM lake.raw.log"
TWO_DAYS: Days = {"1": [1], "2": [2]}
TOTAL = "SELECT ds, sum(extra) AS extra, count(*) AS visits FROM lake.web.visits GROUP BY ds"


@dataclass
class Bench:
    """A workspace, and definitions of ``visits`` with the columns ``ds``, ``n`` and ``extra``, which ``total`` reads."""

    workspace: Workspace
    folder: Path

    def declared(self, query: str = QUERY, more: str = "", others: str = "") -> Definitions:
        (self.folder / "web.yaml").write_text(f"""
defaults: {{catalog: lake, database: web, freshness: 1 day}}
sources: [{{name: lake.raw.log, format: parquet, path: {self.folder}/log}}]
dynamic_tables:
- {{name: visits, partitioned_by: [ds], query: "{query}"{more}}}
- {{name: total, query: "{TOTAL}"}}
{others}
""")
        return load_definitions(self.folder / "web.yaml")

    def fill(
        self,
        definitions: Definitions,
        *,
        full: bool = False,
        more: tuple[str, ...] = ("extra",),
        days: Days = TWO_DAYS,
        scattered: bool = False,
    ) -> Version | Skipped:
        request = RefreshRequest(
            definitions.tables[VISITS],
            definitions.sources,
            datetime(2024, 3, 1, tzinfo=UTC),
            token=str(uuid4()),
            owner="a test",
            full_refresh=full,
        )
        return run(self.workspace, request, lambda plan: write_days(plan, days, more=more, scattered=scattered))

    def visits(self, definitions: Definitions) -> Difference:
        (found,) = differences(self.workspace, definitions, [definitions.tables[VISITS]])
        return found


@pytest.fixture
def bench(workspace: Workspace, tmp_path: Path) -> Bench:
    (tmp_path / "log").mkdir()
    pq.write_table(pa.table({"ds": ["1"], "n": [1], "extra": [1]}), tmp_path / "log" / "part.parquet")
    return Bench(workspace, tmp_path)
