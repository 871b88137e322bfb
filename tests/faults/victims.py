"""Refreshes in processes of their own that are struck at a named point: killed, stopped, or worse.

The points are the audit events of ``services.refreshing``, and these, which only a test needs:

=======  =========================================================================================
writing  the job wrote one of its files and not the other
written  the job wrote all files, but no result
result   the job wrote its result
swap     PyIceberg wrote the metadata file; the next statement swaps the table's pointer
swapped  the statement was run; its transaction is not committed
landed   the transaction is committed; PyIceberg does not know it
=======  =========================================================================================

Children come from a fork server that has imported everything already, so that a fault takes a fraction of a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyarrow_job import Days, write_days
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services import sweeping
from airflow_dynamic_tables.services.planning import RefreshRequest
from airflow_dynamic_tables.services.refreshing import run
from airflow_dynamic_tables.services.sweeping import SweepReport
from airflow_dynamic_tables.services.workspace import Settings, Workspace, utc_now

REVENUE = TableIdentifier("lake", "sales", "revenue")
PREFIX = "airflow_dynamic_tables."
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: revenue, freshness: 1 day, partitioned_by: [ds], query: "SELECT '1' AS ds, 1 AS n"}
"""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        "psycopg",
        "pyarrow.parquet",
        "airflow_dynamic_tables.catalog.sql",
        "airflow_dynamic_tables.staging.iceberg",
        "airflow_dynamic_tables.services.refreshing",
    ]
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where refreshes take place: a folder of this test's own, and a database."""

    home: Path
    database_url: str

    def open(self, clock: Callable[[], datetime] = utc_now) -> Workspace:
        """The workspace, as this process sees it."""
        return Workspace(Settings(self.database_url, f"file://{self.home}/warehouse"), clock)

    def request(self, attempt: Attempt) -> RefreshRequest:
        """What an attempt asks for."""
        definitions = self.home / "sales.yaml"
        if not definitions.exists():
            definitions.write_text(YAML)
        table = load_definitions(definitions).tables[REVENUE]
        partitions = tuple({"ds": day} for day in attempt.planned) or None
        return RefreshRequest(table, {}, MARCH, attempt.token, attempt.owner, partitions)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One refresh: it writes ``days`` and replaces those of ``planned``, or the whole table."""

    token: str
    days: Days
    owner: str = "dag/run/refresh"
    planned: tuple[str, ...] = ()

    def job(self, plan: RefreshPlan) -> None:
        """The job, which says where it is."""
        write_days(plan, self.days, lambda step: sys.audit(f"{PREFIX}{step}", plan.token))


def refresh(site: Site, attempt: Attempt) -> Version:
    """Run an attempt in this process."""
    with site.open() as workspace:
        version = run(workspace, site.request(attempt), attempt.job)
    if not isinstance(version, Version):
        raise TypeError(f"{attempt.token} was skipped: {version.reason}")
    return version


def sweep(site: Site) -> SweepReport:
    """Sweep in this process."""
    with site.open() as workspace:
        return sweeping.sweep(workspace)


def victim(point: str, strike: signal.Signals, target: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a process that sends itself a signal, once, when it comes to a point."""
    process = _processes.Process(target=_struck, args=(point, strike, target, *arguments))
    process.start()
    return process


def start(target: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a process that nothing happens to."""
    process = _processes.Process(target=target, args=arguments)
    process.start()
    return process


def _struck(point: str, strike: signal.Signals, target: Callable[..., object], *arguments: object) -> None:
    waiting = [f"{PREFIX}{point}"]

    def hook(name: str, _: tuple[Any, ...]) -> None:
        if name in waiting:
            waiting.clear()
            os.kill(os.getpid(), strike)

    sys.addaudithook(hook)
    tell_of_swaps()
    target(*arguments)


def tell_of_swaps() -> None:
    """Audit events around the swap of a table's pointer, from SQLAlchemy."""
    swapping: list[Any] = []

    def before(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith(("UPDATE iceberg_tables", "INSERT INTO iceberg_tables")):
            sys.audit(f"{PREFIX}swap")
            swapping.append(statement)

    def commit(_: Any) -> None:
        if swapping:
            sys.audit(f"{PREFIX}swapped")

    def committed(_: Any) -> None:
        if swapping:
            swapping.clear()
            sys.audit(f"{PREFIX}landed")

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", commit)
    event.listen(Session, "after_commit", committed)
