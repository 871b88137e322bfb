"""Kill -9 at every step of a compaction: no row is lost or doubled, the next refresh commits, and the next sweep settles it."""

from __future__ import annotations

import signal
from itertools import cycle, product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import create_file, write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.maintenance import compacting
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import content, versions
from tests.support.faults.victims import KILL, REVENUE, STOP, Attempt, Site, refresh, sweep, victim

BEFORE = ("opened", "publishing", "swap", "swapped")
AFTER = ("landed", "published", "completed")
CURES = ("same partition", "other partition", "sweep")
MANY = DEFAULT_LIMITS.many + 1
OLD = {"1": list(range(MANY)), "2": [2]}


def compact(site: Site) -> int:
    """What the maintenance does for the table."""
    with site.open() as workspace:
        return compacting.compact(workspace, REVENUE).files


def write_scattered(plan: RefreshPlan) -> None:
    """A file for every row."""
    rows = [(day, number) for day, numbers in OLD.items() for number in numbers]
    files = []
    for place, (day, number) in enumerate(rows):
        uri = f"{plan.data_location}/part-{place}.parquet"
        with create_file(uri) as file:
            pq.write_table(pa.table({"ds": pa.array([day]), "n": pa.array([number], pa.int64())}), file)
            files.append(StagedFile(uri, file.tell()))
    columns = (Column("ds", "string"), Column("n", "bigint"))
    touched = tuple({"ds": day} for day in OLD)
    write_text(plan.result_location, RefreshResult(plan.token, "by hand", len(rows), tuple(files), columns, touched).to_json())


def scatter(site: Site) -> None:
    with site.open() as workspace:
        run(workspace, site.request(Attempt("base", OLD)), write_scattered)


def _matrix() -> list[object]:
    """Every point with every cure; CI has one cure for each point."""
    points = BEFORE + AFTER
    short = set(zip(points, cycle(CURES), strict=False))
    return [
        pytest.param(point, cure, marks=() if (point, cure) in short else pytest.mark.long)
        for point, cure in product(points, CURES)
    ]


@pytest.mark.parametrize(("point", "cure"), _matrix())
def test_killed_at(site: Site, fault_report: FaultReport, point: str, cure: str) -> None:
    scatter(site)
    process = victim(point, KILL, compact, site).process
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    fault_report.injected("kill -9")
    with site.open() as workspace:
        assert content(workspace) == OLD
        new = OLD
        if cure == "sweep":
            sweep(site)
        else:
            new = {**OLD, **({"1": [10]} if cure == "same partition" else {"2": [20]})}
            changed = {day: numbers for day, numbers in new.items() if OLD[day] != numbers}
            assert refresh(site, Attempt("next", changed, "somebody else", tuple(changed))).number == 2
        assert content(workspace) == new
        sweep(site)
        assert content(workspace) == new
        assert [version.number for version in versions(workspace)] == list(range(1, 2 + (cure != "sweep")))
        _check_settled(workspace)
    compact(site)
    with site.open() as workspace:
        assert content(workspace) == new
        assert len(workspace.table(REVENUE).read().files) == 2


@pytest.mark.parametrize("point", ["opened", "publishing"])
def test_a_zombie_publishes_nothing(site: Site, fault_report: FaultReport, point: str) -> None:
    """A refresh takes the stage away of one that sleeps; it wakes up when the refresh is over."""
    scatter(site)
    zombie = victim(point, STOP, compact, site)
    zombie.wait_until_stopped()
    fault_report.injected("SIGSTOP")
    new = {**OLD, "1": [10]}
    assert refresh(site, Attempt("next", {"1": [10]}, "somebody else", ("1",))).number == 2
    zombie.wake()
    assert zombie.answer() == (0, None)
    sweep(site)
    with site.open() as workspace:
        assert content(workspace) == new
        assert [version.number for version in versions(workspace)] == [1, 2]
        _check_settled(workspace)


def _check_settled(workspace: Workspace) -> None:
    stages = workspace.ledger.list_stages(REVENUE, tuple(StageState))
    assert {stage.state for stage in stages} <= {StageState.COMMITTED, StageState.ABORTED}
    assert {refresh.token for refresh in workspace.ledger.list_refreshes(REVENUE)} <= {"base", "next"}
