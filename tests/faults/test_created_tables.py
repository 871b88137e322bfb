"""CREATE TABLE AS struck at every step: the table is there whole or never was, the next one can be made, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, Outcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.workspace import Workspace
from tests.faults.test_kills import kill
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import content, versions
from tests.support.faults.victims import REVENUE, STOP, Attempt, Site, start, sweep, victim, when_leases_are_over

_ICEBERG = ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large])]
on_iceberg = pytest.mark.parametrize("site", _ICEBERG, indirect=True)
on_all = pytest.mark.parametrize("site", [*_ICEBERG, pytest.param("delta", marks=pytest.mark.large)], indirect=True)

BEFORE = ("begin", "opened", "planned", "writing", "written", "result", "commit", "publishing", "swap", "swapped")
NAMING = ("landed", "naming")
"""The rows are committed, and have no name yet: an earlier table is replaced by then, a new one is not there."""

REPLACING = ("planned", "swap", "landed")
"""Where CI strikes a table that is replaced: it has the protocol of a refresh, which test_kills strikes everywhere."""

AFTER = ("published", "completed")
CURES = ("retry", "other owner", "sweep")
BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {"1": [10, 11], "3": [3]})
NEXT = Attempt("next", {"3": [30]})


@dataclass(frozen=True, slots=True)
class Way:
    """How tables are made somewhere, and what fails when something is left though nobody is at work any more."""

    create: Callable[..., Created]
    check_nothing_is_left: Callable[[Site, Workspace], None]


def create(site: Site, attempt: Attempt, purpose: Purpose = Purpose.CREATE_OR_REPLACE) -> Created:
    """CREATE TABLE AS in this process."""
    query = "SELECT '1' AS ds, 1 AS n"
    wanted = WantedTable(REVENUE, query, ("lake", "sales"), QueryPlace(Path("query"), query), purpose, site.format)
    with site.open() as workspace:
        return create_table_as(workspace, Definitions(), wanted, (attempt.token, attempt.owner), attempt.job)


def _matrix() -> list[object]:
    """Every point with every cure, for a new table and for one that is replaced; CI has one cure for each point."""
    points = [*product((True,), BEFORE + NAMING + AFTER), *product((False,), (*BEFORE, "landed", *AFTER))]
    short = set(zip([point for point in points if point[0] or point[1] in REPLACING], cycle(CURES), strict=False))
    return [
        pytest.param(
            *(new, point, cure),
            id=f"{'create' if new else 'replace'}-{point}-{cure}",
            marks=() if ((new, point), cure) in short else pytest.mark.long,
        )
        for (new, point), cure in product(points, CURES)
    ]


@on_iceberg
@pytest.mark.parametrize(("new", "point", "cure"), _matrix())
def test_killed_at(site: Site, fault_report: FaultReport, new: bool, point: str, cure: str) -> None:
    killed_at(site, fault_report, new, point, cure)


def _delta_matrix() -> list[object]:
    """As of :func:`_matrix`, where a commit is one entry put into the log; CI strikes around that and around the name."""
    points = [point for point in (*BEFORE, *NAMING, *AFTER) if point not in ("swap", "swapped", "landed")]
    all_points = [*product((True,), points), *product((False,), (point for point in points if point != "naming"))]
    short = {("publishing", True, "sweep"), ("naming", True, "retry"), ("naming", True, "sweep"), ("published", True, "sweep")}
    short |= {("publishing", False, "other owner"), ("published", False, "retry")}
    return [
        pytest.param(*(new, point, cure), marks=() if (point, new, cure) in short else pytest.mark.long)
        for (new, point), cure in product(all_points, CURES)
    ]


@pytest.mark.parametrize("site", ["delta"], indirect=True)
@pytest.mark.parametrize(("new", "point", "cure"), _delta_matrix())
def test_a_delta_table_killed_at(site: Site, fault_report: FaultReport, new: bool, point: str, cure: str) -> None:
    killed_at(site, fault_report, new, point, cure)


def killed_at(site: Site, fault_report: FaultReport, new: bool, point: str, cure: str) -> None:
    """Kill a creator at a point, of a new table or of one that is replaced, and cure what is left of it."""
    if not new:
        create(site, BASE)
    kill_and_cure(CATALOG_TABLES, site, fault_report, new, point, cure)


def kill_and_cure(way: Way, site: Site, fault_report: FaultReport, new: bool, point: str, cure: str) -> None:
    """As of :func:`killed_at`; the table that is replaced is there."""
    old = {} if new else BASE.days
    has_landed = point in AFTER or (point == "landed" and not new)
    seen = STRUCK.days if has_landed else old
    kill(fault_report, point, way.create, site, STRUCK)
    with site.open() as workspace:
        assert content(workspace) == seen
        assert workspace.catalog("lake").table_exists(REVENUE.path) == bool(seen)
        if cure == "sweep":
            sweep(site)
            way.check_nothing_is_left(site, workspace)
            assert content(workspace) == seen
        owner = "somebody else" if cure == "other owner" else STRUCK.owner
        made = way.create(site, Attempt("next", NEXT.days, owner))
        assert made.outcome is (Outcome.REPLACED if seen else Outcome.CREATED)
        assert content(workspace) == NEXT.days
        sweep(site)
        way.check_nothing_is_left(site, workspace)


@on_all
@pytest.mark.parametrize("point", ["settling", "deleted"])
@pytest.mark.parametrize("left_at", ["planned", "naming"])
def test_killed_while_cleaning_up(site: Site, fault_report: FaultReport, left_at: str, point: str) -> None:
    for where, target, arguments in ((left_at, create, (site, STRUCK)), (point, sweep, (site,))):
        kill(fault_report, where, target, *arguments)
    sweep(site)
    with site.open() as workspace:
        assert not workspace.catalog("lake").table_exists(REVENUE.path)
        check_nothing_is_left(site, workspace)


@on_all
@pytest.mark.parametrize(
    "point", [*(pytest.param(point, marks=pytest.mark.long) for point in ("opened", "commit")), "planned", "publishing", "naming"]
)
def test_a_creator_that_wakes_up_too_late_makes_nothing(site: Site, fault_report: FaultReport, point: str) -> None:
    wake_too_late(CATALOG_TABLES, site, fault_report, point)


def wake_too_late(way: Way, site: Site, fault_report: FaultReport, point: str) -> None:
    """Stop a creator until its lease is over and somebody else has made the table."""
    sleeper = victim(point, STOP, way.create, site, STRUCK)
    sleeper.wait_until_stopped()
    fault_report.injected("stopped")
    sweep(site, when_leases_are_over)
    way.create(site, NEXT)
    sleeper.wake()
    made, error = sleeper.answer()
    assert made is None
    assert error is not None
    with site.open() as workspace:
        assert content(workspace) == NEXT.days
        sweep(site)
        way.check_nothing_is_left(site, workspace)


@on_all
def test_of_many_creators_at_once_one_wins_and_the_others_are_told(site: Site) -> None:
    race(CATALOG_TABLES, site)


def race(way: Way, site: Site) -> None:
    """Let creators of one table run at once."""
    attempts = [Attempt(f"t{number}", {str(number): [number]}, f"owner {number}") for number in range(4)]
    children = [start(way.create, site, attempt, Purpose.CREATE) for attempt in attempts]
    answers = [child.answer() for child in children]
    (winner,) = [made for made, _ in answers if made is not None]
    errors = [error for made, error in answers if made is None]
    assert all(
        error.startswith(("ConflictError: lake.sales.revenue is being created by", "TableAlreadyExistsError: "))
        for error in errors
    )
    with site.open() as workspace:
        assert content(workspace) == next(attempt.days for attempt in attempts if attempt.token == winner.token)
        sweep(site)
        way.check_nothing_is_left(site, workspace)


def check_nothing_is_left(site: Site, workspace: Workspace) -> None:
    """Nobody is at work any more: catalog, ledger and disk know of the table, or of nothing."""
    catalog = workspace.catalog("lake")
    names = catalog.list_tables("sales") if catalog.database_exists("sales") else []
    assert names == (["revenue"] if catalog.table_exists(REVENUE.path) else [])
    folders = list((site.home / "warehouse").glob("*/sales/*"))
    assert len(folders) == len(names), folders
    landed = {version.token for version in versions(workspace)}
    stages = {stage.token: stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))}
    assert {token for token, state in stages.items() if state is StageState.COMMITTED} == landed
    assert set(stages.values()) <= {StageState.COMMITTED, StageState.ABORTED}


CATALOG_TABLES = Way(create, check_nothing_is_left)
