"""What is done to the table: each piece of work is a value that any process can perform."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import QuarantinedError
from airflow_dynamic_tables.formats.hive import stage
from airflow_dynamic_tables.services.maintenance import sweeping
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, run
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.workspace import Workspace, utc_now
from airflow_dynamic_tables.services.writes import quarantine
from airflow_dynamic_tables.services.writes.protocol import finishing
from tests.support.faults.model.state import Change
from tests.support.faults.steps import PREFIX
from tests.support.faults.victims import Site
from tests.support.pyarrow_job import write_days

NOTHING = Change("")

UNPLANNED = "unplanned"
"""A flaw that a refresh of the whole table cannot have."""

NOT_PLANNED = "never planned"
"""A day that no refresh plans."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a piece of work ended: ``landed``, ``skipped``, ``done``, or the name of an error; and what there is to say."""

    kind: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.text[:300]}".strip()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the work is done: a site, the table in it, and the file that defines it."""

    site: Site
    table: TableIdentifier
    definition: Path

    def declared(self) -> DynamicTable:
        return load_definitions(self.definition).tables[self.table]


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work: ``refresh``, ``hold`` (in quarantine), ``publish``, ``reject``, ``rollback`` or ``sweep``.

    ``ahead`` is how far the clock of whoever does it is ahead. ``flaw`` is what is wrong with the job of a refresh.
    """

    kind: str
    change: Change = NOTHING
    owner: str = ""
    ahead: timedelta = timedelta()
    flaw: str = ""

    def __str__(self) -> str:
        told = [self.kind, self.change.token]
        if self.kind in ("refresh", "hold"):
            told += [f"of {','.join(self.change.planned) or 'all'} by {self.owner} at {self.change.at:%d}"]
        if self.change.restored is not None:
            told += [f"to version {self.change.restored}"]
        told += [f"({self.flaw})" if self.flaw else "", f"clock {self.ahead}" if self.ahead else ""]
        return " ".join(filter(None, told))


def perform(place: Place, work: Work) -> Outcome:
    """Do a piece of work in this process; nobody waits a minute for a Hive commit under way of somebody who was stopped."""
    stage._PATIENCE = 2.0
    with _clock(work.ahead, writes=work.kind != "sweep") as clock, place.site.open(clock) as workspace:
        try:
            ended = _perform(workspace, place, work)
        except Exception as error:
            return Outcome(type(error).__name__, str(error))
    if isinstance(ended, Version):
        return Outcome("landed", f"as version {ended.number}")
    return ended if isinstance(ended, Outcome) else Outcome("skipped", ended.reason.text)


@contextmanager
def _clock(ahead: timedelta, *, writes: bool) -> Iterator[Callable[[], datetime]]:
    """The clock of a machine that is ahead, for this package, and for PyIceberg where it writes."""
    right = time.time
    if writes:
        time.time = lambda: right() + ahead.total_seconds()
    try:
        yield lambda: datetime.fromtimestamp(right(), utc_now().tzinfo) + ahead
    finally:
        time.time = right


def _perform(workspace: Workspace, place: Place, work: Work) -> Version | Skipped | Outcome:
    token = work.change.token
    match work.kind:
        case "refresh":
            return run(workspace, _request(place, work), lambda plan: _job(plan, work))
        case "hold":
            return _hold(workspace, place, work)
        case "publish":
            return quarantine.publish(workspace, token)
        case "reject":
            quarantine.reject(workspace, token, "nobody wants it")
            return Outcome("done")
        case "rollback":
            number = work.change.restored or 0
            return rollback(workspace, RollbackRequest(place.table, number, token, work.owner))
        case _:
            report = sweeping.sweep(workspace)
            if report.failed:
                return Outcome("failed", str(report))
            told = {name: value for name in report.__slots__ if (value := getattr(report, name))}
            return Outcome("done", ", ".join(f"{name} {value}" for name, value in told.items()))


def _request(place: Place, work: Work) -> RefreshRequest:
    change = work.change
    partitions = PartitionSet.of({"ds": day} for day in change.planned) if change.planned else None
    if change.at is None:
        raise ValueError("a refresh has a schedule time")
    return RefreshRequest(place.declared(), {}, change.at, change.token, work.owner, partitions)


def _hold(workspace: Workspace, place: Place, work: Work) -> Skipped | Outcome:
    begun = begin(workspace, _request(place, work))
    if not isinstance(begun, Attempt):
        return begun
    _job(begun.plan, work)
    with suppress(QuarantinedError), finishing(begun.write):
        raise QuarantinedError("somebody shall look at it")
    return Outcome("held")


def _job(plan: RefreshPlan, work: Work) -> None:
    """The job, which says where it is."""
    change = work.change
    days = {day: tuple(number for number, _ in rows) for day, rows in change.rows.items()}
    more = tuple(f"c{number}" for number in range(1, change.width + 1))
    if work.flaw == UNPLANNED:
        days[NOT_PLANNED] = (0,)
    if work.flaw == "no result":
        plan = replace(plan, token="another")
    write_days(plan, days, lambda step: sys.audit(f"{PREFIX}{step}", change.token), more)
    if work.flaw == "fails":
        raise RuntimeError("the job failed")
    if work.flaw == "truncated" and plan.sink is not None:
        with psycopg.connect(plan.sink.url.removeprefix("jdbc:"), user=plan.sink.user, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {plan.sink.table}".encode())
    elif work.flaw == "truncated":
        for file in Path(urlsplit(plan.data_location).path).rglob("*.*"):
            file.write_bytes(file.read_bytes()[:-5])
