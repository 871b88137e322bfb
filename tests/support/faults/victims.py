"""Refreshes in processes of their own that are struck at a named point: killed, stopped, or worse.

The points are those of :mod:`tests.support.faults.steps`.
They are :data:`~tests.support.faults.children.PROCESSES`, so that a fault takes a fraction of a second.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import DynamicTableError, QuarantinedError
from airflow_dynamic_tables.services.deployments.diffing import Applied, apply, differences
from airflow_dynamic_tables.services.maintenance import sweeping
from airflow_dynamic_tables.services.maintenance.sweeping import SweepReport
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, utc_now
from airflow_dynamic_tables.services.writes.leases import LEASE
from airflow_dynamic_tables.services.writes.protocol import finishing
from tests.support.disks import wait_for_no_disk
from tests.support.faults.children import PROCESSES
from tests.support.faults.report import FaultReport
from tests.support.faults.steps import PREFIX, watch_steps
from tests.support.pyarrow_job import Days, write_days

REVENUE = TableIdentifier("lake", "sales", "revenue")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales, version_max_age: 1 day}
dynamic_tables:
- {name: revenue, freshness: 1 day, partitioned_by: [ds], query: "SELECT '1' AS ds, 1 AS n"}
"""

Answer = tuple[Any, str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """Where refreshes take place: a folder of this test's own, a database, and a warehouse, which is in the folder by default.

    With a ``catalogs`` file the tables are where that says: in the folder ``data``, or in the database ``tables_url``.
    """

    home: Path
    database_url: str
    bucket: str | None = None
    catalogs: Path | None = None
    format: str = "iceberg"
    tables_url: str | None = None
    data: str = ""

    @property
    def tables(self) -> str:
        """URI of the folder of all tables' files."""
        return self.data or self.warehouse

    @property
    def warehouse(self) -> str:
        """URI of the folder of all tables."""
        return f"{self.bucket or f'file://{self.home}'}/warehouse"

    def open(self, clock: Callable[[], datetime] = utc_now) -> Workspace:
        """The workspace, as this process sees it."""
        return open_workspace(WorkspaceSettings(self.database_url, self.warehouse, self.catalogs), clock)

    def definitions(self, more: tuple[str, ...] = ()) -> str:
        """The text that defines the table, with more columns."""
        text = YAML.replace("defaults: {", f"defaults: {{format: {self.format}, ")
        return text.replace("1 AS n", ", ".join(("1 AS n", *(f"2 AS {name}" for name in more))))

    def request(self, attempt: Attempt) -> RefreshRequest:
        """What an attempt asks for."""
        definitions = self.home / "sales.yaml"
        if not definitions.exists():
            whole = definitions.with_suffix(f".{os.getpid()}")  # others that race read the definitions already
            whole.write_text(self.definitions())
            whole.replace(definitions)
        table = load_definitions(definitions).tables[REVENUE]
        partitions = PartitionSet.of({"ds": day} for day in attempt.planned) if attempt.planned else None
        return RefreshRequest(table, {}, MARCH, attempt.token, attempt.owner, partitions, attempt.full_refresh)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One refresh: it writes ``days`` and replaces those of ``planned``, or the whole table.

    ``more`` are columns that it returns besides. It writes a file for each day or, ``scattered``, for each row.
    """

    token: str
    days: Days
    owner: str = "dag/run/refresh"
    planned: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    full_refresh: bool = False
    scattered: bool = False

    def job(self, plan: RefreshPlan) -> None:
        """The job, which says where it is."""
        write_days(plan, self.days, lambda step: sys.audit(f"{PREFIX}{step}", plan.token), self.more, self.scattered)


def refresh(site: Site, attempt: Attempt, clock: Callable[[], datetime] = utc_now) -> Version:
    """Run an attempt in this process."""
    with site.open(clock) as workspace:
        return refresh_in(workspace, site, attempt)


def refresh_in(workspace: Workspace, site: Site, attempt: Attempt) -> Version:
    """Run an attempt in a workspace that is open already."""
    version = run(workspace, site.request(attempt), attempt.job)
    if not isinstance(version, Version):
        raise TypeError(f"{attempt.token} was skipped: {version.reason}")
    return version


def declare(site: Site, more: tuple[str, ...] = ()) -> Definitions:
    """Declare the table with more columns, which its query returns besides."""
    file = site.home / "sales.yaml"
    file.write_text(site.definitions(more))
    return load_definitions(file)


def apply_with_refresh(site: Site, attempt: Attempt) -> Applied:
    """``apply --refresh`` in this process, of the table as it is declared now."""
    definitions = declare(site, attempt.more)
    with site.open() as workspace:
        (found,) = differences(workspace, definitions)
        return apply(
            workspace, found, definitions.tables[REVENUE], refresh=lambda _: run(workspace, site.request(attempt), attempt.job)
        )


def restore(site: Site, number: int, token: str, *, with_columns: bool) -> Version:
    """``rollback``, or ``rollback --with-columns``, in this process."""
    with site.open() as workspace:
        return rollback(workspace, RollbackRequest(REVENUE, number, token, "another owner", with_columns))


def leave_in_quarantine(site: Site, attempt: Attempt) -> None:
    """Run an attempt in this process up to its stage, and put that into quarantine as a check does that finds too few rows."""
    with site.open() as workspace:
        begun = begin(workspace, site.request(attempt))
        if isinstance(begun, Skipped):
            raise TypeError(f"{attempt.token} was skipped: {begun.reason}")
        attempt.job(begun.plan)
        workspace.ledger.update_refresh(attempt.token, rows=1)
        sys.audit(f"{PREFIX}holding", attempt.token)
        with suppress(QuarantinedError), finishing(begun.write):
            raise QuarantinedError("too few rows")
        sys.audit(f"{PREFIX}held", attempt.token)


def when_leases_are_over() -> datetime:
    """A clock by which every lease of now has ended."""
    return utc_now() + LEASE + timedelta(seconds=1)


def sweep(site: Site, clock: Callable[[], datetime] = utc_now) -> SweepReport:
    """Sweep in this process."""
    with site.open(clock) as workspace:
        return sweeping.sweep(workspace)


@dataclass(frozen=True, slots=True)
class Child:
    """A process, and what it returned or raised."""

    process: BaseProcess
    _answer: Connection

    def answer(self) -> Answer:
        """Wait for its end.

        :return: what it returned and no error, or nothing and the name and text of its error.
        """
        told: Answer = self._answer.recv() if self._answer.poll(300) else (None, "it said nothing")
        self.process.join(60)
        return told

    def is_over(self) -> bool:
        """Whether it has answered, or died."""
        return self._answer.poll()

    def wait_until_stopped(self) -> None:
        """Wait until a signal stopped it."""
        state = Path(f"/proc/{self.process.pid}/stat")
        until = time.monotonic() + 300
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > until:
                raise TimeoutError("it was not stopped")
            time.sleep(0.01)

    def wake(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid or 0, signal.SIGCONT)


def start(target: Callable[..., object], *arguments: object) -> Child:
    """Call a function in a process of its own."""
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_answer, args=(there, target, *arguments), daemon=True)
    process.start()
    there.close()
    return Child(process, here)


KILL = partial(signal.raise_signal, signal.SIGKILL)
STOP = partial(signal.raise_signal, signal.SIGSTOP)


def victim(point: str, strike: Callable[[], object], target: Callable[..., object], *arguments: object) -> Child:
    """Call a function in a process that something happens to, once, when it comes to a point."""
    return start(_struck, point, strike, target, *arguments)


def kill(fault_report: FaultReport, step: str, target: Callable[..., object], *arguments: object) -> None:
    """Run something in a process that is killed at a step, and wait for its end."""
    await_kill(fault_report, step, victim(step, KILL, target, *arguments))


def await_kill(fault_report: FaultReport, step: str, child: Child) -> None:
    """Wait for the end of a process that is killed at a step."""
    process = child.process
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, f"it was not killed at {step}, but ended with {process.exitcode}"
    fault_report.injected("kill -9")


def _answer(to: Connection, target: Callable[..., object], *arguments: object) -> None:
    wait_for_no_disk()
    try:
        to.send((target(*arguments), None))
    except Exception as error:
        to.send((None, f"{type(error).__name__}: {error}"))


def _struck(point: str, strike: Callable[[], object], target: Callable[..., object], *arguments: object) -> object:
    waiting = [point]

    def hook(reached: str) -> None:
        if reached in waiting:
            waiting.clear()
            strike()

    watch_steps(hook)
    return target(*arguments)


def trail(target: Callable[..., object], *arguments: object) -> Child:
    """Call a function in a process that answers with the points that it came to, in the order of its first visits."""
    return start(_recorded, target, *arguments)


def _recorded(target: Callable[..., object], *arguments: object) -> list[str]:
    reached: dict[str, None] = {}
    watch_steps(lambda point: reached.setdefault(point))
    target(*arguments)
    return list(reached)


def race(site: Site, plan: Sequence[Sequence[Attempt]]) -> dict[str, Answer]:
    """Run the attempts of each sequence in a process of its own; the first of all at once, then the second of all, ...

    The first process also sweeps between them.

    :return: the answer for each token.
    """
    line = PROCESSES.Barrier(len(plan))
    children = [start(_run_race, site, line, attempts, number == 0) for number, attempts in enumerate(plan)]
    answers: dict[str, Answer] = {}
    for child in children:
        own, error = child.answer()
        if error is not None:
            raise RuntimeError(error)
        answers |= own
    return answers


def _run_race(site: Site, line: Barrier, attempts: Sequence[Attempt], sweeps: bool) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    with site.open() as workspace:
        for attempt in attempts:
            line.wait(300)
            try:
                answers[attempt.token] = refresh_in(workspace, site, attempt), None
            except DynamicTableError as error:
                answers[attempt.token] = None, f"{type(error).__name__}: {error}"
            if sweeps:
                sweeping.sweep(workspace)
    return answers
