"""One table with a partition for each day, in a catalog of some kind, and what other engines do to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.support.clock import Clock
from tests.support.other_engines import remembered
from tests.support.pyarrow_job import write_days

MARCH = datetime(2024, 3, 1, tzinfo=UTC)

_AT: dict[tuple[str, str], Callable[[], None]] = {}
"""What happens once at a step of a refresh, by step and token."""


@sys.addaudithook
def _happen(event: str, arguments: Sequence[object]) -> None:
    if event.startswith("airflow_dynamic_tables.") and arguments and (happens := _AT.pop((event, str(arguments[0])), None)):
        happens()


@dataclass
class Place:
    """The table, and its sources: they have the days that a test puts there.

    :param binaries: where the programs of PostgreSQL are.
    """

    workspace: Workspace
    clock: Clock
    folder: Path
    table: TableIdentifier
    format: str
    server_url: str = ""
    binaries: Path = Path()
    present: dict[str, list[int]] = field(default_factory=dict)

    def request(self, time: datetime, token: str = "", **asked: Any) -> RefreshRequest:
        """A scheduled refresh, unless something else is asked for."""
        name = self.table
        (self.folder / "tables.yaml").write_text(
            f"defaults: {{catalog: {name.catalog}, database: {name.database}, skip_unchanged: false}}\n"
            "dynamic_tables:\n"
            f"- {{name: {name.table}, format: {self.format}, freshness: 1 day, initial: latest, partitioned_by: [ds],\n"
            "   options: {partition.fields.ds.date-formatter: yyyy-MM-dd}, query: \"SELECT '1' AS ds, 1 AS n\"}\n"
        )
        definition = load_definitions(self.folder / "tables.yaml").tables[self.table]
        named = {"token": token or str(uuid4()), "owner": token or "test"}
        return RefreshRequest(definition, {}, time, **{**named, "catches_up": True, **asked})

    def refresh(self, day: int, rows: list[int] | None = None, token: str = "", **asked: Any) -> Version:
        """The refresh of the tick at the end of a day of March, whose source has these rows of the day by then."""
        if rows is not None:
            self.present[f"2024-03-{day:02d}"] = rows
        end = MARCH + timedelta(days=day)
        self.clock.time = max(self.clock.time, end)
        outcome = run(self.workspace, self.request(end, token, **asked), self.job)
        assert not isinstance(outcome, Skipped), outcome.reason
        return outcome

    def by_hand(self, day: int, rows: list[int], token: str = "") -> Version:
        return self.refresh(day, rows, token, partitions=PartitionSet.of([{"ds": f"2024-03-{day:02d}"}]), catches_up=False)

    def roll_back(self, number: int, token: str) -> Version:
        return rollback(self.workspace, RollbackRequest(self.table, number, token, "test"))

    def at(self, step: Step, token: str, happens: Callable[[], None]) -> None:
        """Do something while the refresh of a token is held up at a step, which it was for longer than its lease."""

        def later() -> None:
            self.clock.time += 2 * LEASE
            happens()

        _AT[f"airflow_dynamic_tables.{step}", token] = later

    def rows(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in self.workspace.table(self.table, self.format).sample(100):
            found.setdefault(int(row["ds"][-2:]), []).append(row["n"])
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}

    def history(self) -> dict[str, tuple[str, int | None]]:
        """State and version of each refresh by its token, oldest first."""
        refreshes = self.workspace.ledger.list_refreshes(self.table, 100)[::-1]
        return {refresh.token: (refresh.state.value, refresh.version) for refresh in refreshes}

    def error(self, token: str) -> str:
        """What the history says was wrong with a refresh."""
        refresh = self.workspace.ledger.get_refresh(token)
        return (refresh.error if refresh is not None else None) or ""

    def remember(self) -> Callable[[], None]:
        """What another engine calls to go back to what the table is now."""
        if self.format == "jdbc":
            return self._dumped()
        return remembered(self.workspace, self.table, self.format)

    def drop_by_others(self) -> None:
        """What another engine calls to drop the table; nothing here hears of it."""
        if self.format == "jdbc":
            with psycopg.connect(self.server_url, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self.table.table)))
            return
        self.workspace.catalog(self.table.catalog).drop_table(self.table.path)

    def _dumped(self) -> Callable[[], None]:
        program = [str(self.binaries / "pg_dump"), "--clean", "--if-exists", self.server_url]
        dump = subprocess.run(program, capture_output=True, check=True, text=True).stdout
        psql = [str(self.binaries / "psql"), "-q", "-v", "ON_ERROR_STOP=1", self.server_url]

        def restore() -> None:
            subprocess.run(psql, input=dump, text=True, check=True, stdout=subprocess.DEVNULL)

        return restore

    def job(self, plan: RefreshPlan) -> None:
        write_days(plan, {day: rows for day, rows in self.present.items() if plan.partitions.covers({"ds": day})})
