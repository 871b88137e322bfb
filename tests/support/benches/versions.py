"""A workspace with two tables, numbers and the total that reads it, and a clock that can be set."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")
TOTAL = TableIdentifier("lake", "sales", "total")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales, versions_to_keep: 2, version_max_age: 1 day}
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}
- {name: total, freshness: 1 hour, query: SELECT sum(x) AS x FROM numbers}
"""


@dataclass
class VersionBench:
    folder: Path
    database_url: str
    ahead: timedelta = timedelta()
    workspace: Workspace = field(init=False)

    def __post_init__(self) -> None:
        settings = WorkspaceSettings(self.database_url, f"file://{self.folder}/warehouse")
        self.workspace = open_workspace(settings, lambda: datetime.now(UTC) + self.ahead)
        (self.folder / "sales.yaml").write_text(YAML)
        self.definitions = load_definitions(self.folder / "sales.yaml")

    def request(self, table: TableIdentifier = NUMBERS, token: str | None = None) -> RefreshRequest:
        token = token or str(uuid4())
        return RefreshRequest(self.definitions.tables[table], {}, MARCH, token=token, owner=token)

    def refresh(self, *numbers: int, table: TableIdentifier = NUMBERS, at: datetime = MARCH, force: bool = False) -> Version:
        request = replace(self.request(table), schedule_time=at, force=force)
        version = run(self.workspace, request, lambda plan: write_numbers(plan, numbers))
        assert isinstance(version, Version)
        return version

    def begin(self, table: TableIdentifier, token: str) -> Attempt:
        """A refresh that is running: its owner lives, whatever the clock says."""
        begun = begin(self.workspace, self.request(table, token))
        assert isinstance(begun, Attempt)
        self.workspace.ledger.renew_lease(token, datetime.now(UTC) + timedelta(days=10_000))
        return begun

    def rollback(self, number: int, token: str | None = None, table: TableIdentifier = NUMBERS) -> Version:
        return rollback(self.workspace, RollbackRequest(table, number, token or str(uuid4()), "me"))

    def numbers(self, version: int | None = None, table: TableIdentifier = NUMBERS) -> list[int]:
        return [row["x"] for row in sample(self.workspace, table, 100, version)]

    def kept(self, table: TableIdentifier = NUMBERS) -> list[int]:
        return [version.number for version in self.workspace.table(table, "iceberg").versions()]

    def files(self) -> list[Path]:
        return sorted(file for file in (self.folder / "warehouse").rglob("*") if file.is_file())
