"""Whoever scheduled a refresh hears of its version once, whatever became of the one who should have told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import JobFailedError
from airflow_dynamic_tables.ledger.base import ReportState
from airflow_dynamic_tables.services.maintenance.sweeping import REPORT_WINDOW, missing_reports, sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers

TICK = datetime(2024, 1, 2, tzinfo=UTC)


class Scheduler:
    """Knows which work is over, and has the reports that it took; those of work that is over it does not take."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.reports: list[str] = []
        self.over: set[str] = set()
        self.asked: list[TableIdentifier] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def reported(self, table: TableIdentifier, since: datetime) -> list[str]:
        assert since < self.workspace.now()
        self.asked.append(table)
        return list(self.reports)

    def is_over(self, owner: str) -> bool:
        self.meanwhile()
        return owner in self.over

    def maintain(self) -> list[str]:
        missing = [late.token for late in missing_reports(self.workspace, self.reported, self.is_over)]
        self.reports += missing
        return missing


@pytest.fixture
def scheduler(workspace: Workspace) -> Scheduler:
    return Scheduler(workspace)


@pytest.fixture
def table(tmp_path: Path) -> DynamicTable:
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables: [{name: numbers, freshness: 1 day, query: SELECT 1 AS x}]")
    (table,) = load_definitions(path).tables.values()
    return table


@pytest.fixture
def refresh(workspace: Workspace, table: DynamicTable) -> Callable[..., None]:
    def refresh(
        token: str, run_name: str | None = None, *, job: Callable[[RefreshPlan], None] = write_numbers, is_reported: bool = True
    ) -> None:
        run(workspace, RefreshRequest(table, {}, TICK, token, run_name or token, is_reported=is_reported), job)

    return refresh


def test_a_version_that_nobody_told_of_is_told_of_once(scheduler: Scheduler, refresh: Callable[..., None]) -> None:
    refresh("killed")
    refresh("told")
    refresh("lost")
    scheduler.reports.append("told")
    scheduler.over |= {"killed", "told", "lost"}
    assert scheduler.maintain() == ["killed", "lost"]
    assert scheduler.maintain() == []
    assert scheduler.reports == ["told", "killed", "lost"]


def test_what_was_told_is_not_asked_for_again(scheduler: Scheduler, refresh: Callable[..., None], workspace: Workspace) -> None:
    refresh("told")
    scheduler.reports.append("told")
    scheduler.over.add("told")
    assert scheduler.maintain() == []
    refreshed = workspace.ledger.get_refresh("told")
    assert refreshed.report is ReportState.MADE
    scheduler.reports.clear()  # as when somebody cleans up Airflow's database
    scheduler.asked.clear()
    assert scheduler.maintain() == []
    assert scheduler.asked == []


def test_a_task_that_has_yet_to_tell_is_left_to_do_so(scheduler: Scheduler, refresh: Callable[..., None]) -> None:
    refresh("slow")
    assert scheduler.maintain() == []
    scheduler.over.add("slow")
    assert scheduler.maintain() == ["slow"]


def test_a_task_that_tells_while_it_is_looked_for_is_not_told_of_twice(
    scheduler: Scheduler, refresh: Callable[..., None]
) -> None:
    refresh("slow")

    def tell_at_last() -> None:
        scheduler.reports.append("slow")
        scheduler.over.add("slow")

    scheduler.meanwhile = tell_at_last
    assert scheduler.maintain() == []
    assert scheduler.reports == ["slow"]


def test_a_success_that_was_not_taken_is_made_up_for_by_the_next_maintenance(
    scheduler: Scheduler, refresh: Callable[..., None]
) -> None:
    refresh("killed")
    scheduler.over.add("killed")
    assert scheduler.maintain() == ["killed"]
    scheduler.reports.clear()  # the maintenance was killed before its own success
    assert scheduler.maintain() == ["killed"]


def test_a_commit_that_the_sweep_completes_is_told_of(
    scheduler: Scheduler, refresh: Callable[..., None], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(step: Step, token: str) -> None:
        trace(step, token)
        if step is Step.PUBLISHED:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("airflow_dynamic_tables.services.writes.protocol.trace", die)
        patch.setattr("airflow_dynamic_tables.services.writes.protocol.abort_stage", lambda *_, **__: None)
        with pytest.raises(Killed):
            refresh("killed")
    scheduler.over.add("killed")
    assert scheduler.maintain() == []
    clock.time += LEASE * 2
    assert sweep(scheduler.workspace).completed == ("killed",)
    assert scheduler.maintain() == ["killed"]


def test_there_is_nothing_to_tell_of_what_nobody_scheduled_or_what_made_no_version(
    scheduler: Scheduler, refresh: Callable[..., None]
) -> None:
    def fail(_: RefreshPlan) -> None:
        raise JobFailedError("no")

    refresh("by hand", is_reported=False)
    with pytest.raises(JobFailedError):
        refresh("failed", job=fail)
    scheduler.over |= {"by hand", "failed"}
    assert scheduler.maintain() == []


def test_what_is_a_week_old_is_no_news(scheduler: Scheduler, refresh: Callable[..., None], clock: Clock) -> None:
    refresh("killed")
    scheduler.over.add("killed")
    clock.time += REPORT_WINDOW + timedelta(seconds=1)
    assert scheduler.maintain() == []
