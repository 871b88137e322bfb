"""Kill -9 between reading the sources and recording what was read: no partition is clean that an older state made.

Sources change at one step of an incremental refresh, and its process dies at the same or a later step.
"""

from __future__ import annotations

import shutil
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.clock import Clock
from tests.support.daily_facts import Bench, name_of, only
from tests.support.faults.report import FaultReport
from tests.support.faults.steps import watch_steps
from tests.support.faults.victims import KILL, await_kill, start

STEPS = ("begin", "opened", "planned", "commit", "publishing", "swap", "swapped", "landed", "published", "completed")
IN_BASE = {("opened", "planned"), ("planned", "completed"), ("commit", "landed")}
"""When the sources change, and when the process dies."""


def bench_of(folder: Path, clock: Clock) -> Bench:
    settings = WorkspaceSettings(f"sqlite:///{next(folder.glob('*.db'))}", f"file://{folder}/warehouse")
    bench = Bench(open_workspace(settings, clock), clock, folder)
    bench.settings = "refresh_mode: incremental"
    bench.all_days = True
    return bench


def refresh_and_die(folder: Path, changes_at: str, dies_at: str) -> None:
    """Refresh after changes of days 1 and 2; days 2 and 3 change at a step."""
    bench = bench_of(folder, Clock())
    bench.writes = 100
    waiting = [changes_at]

    def hook(step: str) -> None:
        if step in waiting:
            waiting.clear()
            bench.write(2, 200)
            bench.write(3, 300)
        if step == dies_at and not waiting:
            KILL()

    watch_steps(hook)
    bench.refresh(5)


@pytest.mark.parametrize(
    ("changes_at", "dies_at"),
    [
        pytest.param(*steps, id="-".join(steps), marks=() if steps in IN_BASE else (pytest.mark.large,))
        for steps in combinations_with_replacement(STEPS, 2)
    ],
)
def test_what_changed_meanwhile_is_refreshed_after_a_kill(
    tmp_path: Path, empty_state: Path, changes_at: str, dies_at: str, fault_report: FaultReport
) -> None:
    shutil.copy(empty_state, tmp_path / "state.db")
    clock = Clock()
    bench = bench_of(tmp_path, clock)
    with bench.workspace:
        bench.begin()
        bench.refresh(4)
        before = bench.rows()
        bench.write(1, 10)
        bench.write(2, 20)
        read = bench.expected()

    await_kill(fault_report, dies_at, start(refresh_and_die, tmp_path, changes_at, dies_at))

    bench = bench_of(tmp_path, clock)
    with bench.workspace:
        assert bench.rows() in (before, read, bench.expected())
        bench.refresh(8)
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(8), Skipped)


IN_COMMITS = "refresh_mode: incremental\n  max_partitions_per_commit: 2"


def refresh_in_commits_and_die(folder: Path) -> None:
    """Refresh eight days for the first time, two in a commit, and die before the third commit begins."""
    bench = bench_of(folder, Clock())
    bench.settings = IN_COMMITS
    begun: list[str] = []

    def hook(step: str) -> None:
        begun.extend([step] if step == "begin" else [])
        if len(begun) == 3:
            KILL()

    watch_steps(hook)
    bench.refresh(8)


def test_a_refresh_killed_between_two_commits_is_continued(tmp_path: Path, empty_state: Path, fault_report: FaultReport) -> None:
    shutil.copy(empty_state, tmp_path / "state.db")
    clock = Clock()
    bench = bench_of(tmp_path, clock)
    with bench.workspace:
        bench.begin()
        for day in range(4, 8):
            bench.write(day, day)

    await_kill(fault_report, "the third begin", start(refresh_in_commits_and_die, tmp_path))

    bench = bench_of(tmp_path, clock)
    bench.settings = IN_COMMITS
    with bench.workspace:
        assert sorted(bench.rows()) == [name_of(day) for day in range(4)]
        bench.refresh(8)
        assert [plan.partitions for plan in bench.plans] == [only(4, 5), only(6, 7)]
        assert bench.rows() == bench.expected()
        assert isinstance(bench.refresh(8), Skipped)
