"""Kill -9 at every step of a refresh: the table is old or new, the next refresh commits, and nothing is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import cycle, product

import pytest

from airflow_dynamic_tables.services.deployments.applying import Outcome
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, columns, content, data_files, versions
from tests.support.faults.victims import KILL, Attempt, Site, apply_with_refresh, declare, refresh, restore, sweep, victim

BEFORE = ("begin", "opened", "planned", "writing", "written", "result", "commit", "publishing", "swap", "swapped")
AFTER = ("landed", "published", "completed")
CURES = ("retry", "other owner", "sweep")

BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {"1": [10, 11], "3": [3]}, planned=("1", "3"))
NEXT = Attempt("next", {"3": [30]}, planned=("3",))


def _matrix() -> list[object]:
    """Every point with every cure; CI has one cure for each point."""
    points = list(product((True, False), BEFORE + AFTER))
    short = set(zip(points, cycle(CURES), strict=False))
    return [
        pytest.param(
            *(first, point, cure),
            id=f"{'first' if first else 'later'}-{point}-{cure}",
            marks=() if ((first, point), cure) in short else pytest.mark.long,
        )
        for (first, point), cure in product(points, CURES)
    ]


@pytest.mark.parametrize(("first", "point", "cure"), _matrix())
def test_killed_at(site: Site, fault_report: FaultReport, first: bool, point: str, cure: str) -> None:
    killed_at(site, fault_report, first, point, cure)


FEW = [
    (True, "publishing", "retry"),
    (False, "publishing", "sweep"),
    (True, "published", "other owner"),
    (False, "written", "sweep"),
    (False, "published", "retry"),
    (False, "completed", "sweep"),
]
IN_POSTGRES = [
    *FEW,
    (True, "swap", "sweep"),
    (False, "swapped", "retry"),
    (True, "swapped", "other owner"),
    (False, "writing", "retry"),
]


BASE_SET = [(False, "publishing", "sweep"), (True, "swap", "sweep"), (False, "published", "retry")]
"""Of each other format: a commit that is given up, and one that landed."""


def _of_other_formats() -> list[object]:
    cases = [("delta", case, ()) for case in FEW] + [("jdbc", case, (pytest.mark.postgres,)) for case in IN_POSTGRES]
    return [
        pytest.param(site, *case, marks=marks if case in BASE_SET else [*marks, pytest.mark.large]) for site, case, marks in cases
    ]


@pytest.mark.parametrize(("site", "first", "point", "cure"), _of_other_formats(), indirect=["site"])
def test_a_refresh_of_another_format_killed_at(site: Site, fault_report: FaultReport, first: bool, point: str, cure: str) -> None:
    killed_at(site, fault_report, first, point, cure)


def killed_at(site: Site, fault_report: FaultReport, first: bool, point: str, cure: str) -> None:
    """Kill a refresh at a point, the first one or a later one, and cure what is left of it."""
    if not first:
        refresh(site, BASE)
    old = {} if first else {"1": [1], "2": [2]}
    new = {**old, "1": [10, 11], "3": [3]}
    seen = new if point in AFTER else old
    kill(fault_report, point, refresh, site, STRUCK)
    with site.open() as workspace:
        assert content(workspace) == seen
        if cure == "sweep":
            sweep(site)
            assert content(workspace) == seen
        owner = "somebody else" if cure == "other owner" else STRUCK.owner
        assert refresh(site, Attempt("next", NEXT.days, owner, NEXT.planned)).number == len(versions(workspace))
        assert content(workspace) == {**seen, "3": [30]}
        is_kept = point in AFTER and site.tables_url is None
        assert bool(data_files(site, STRUCK.token)) == is_kept, "the next refresh cleans up"
        sweep(site)
        assert content(workspace) == {**seen, "3": [30]}
        check_all_settled(site, workspace)


def _cleaning_up() -> list[object]:
    """Where a refresh was left, and where its heir is killed; CI has one heir for each point."""
    points = [("planned", point) for point in ("settling", "deleted")]
    points += [("swap", point) for point in ("swap", "swapped", "landed", "settling", "deleted")]
    short = set(zip(points, cycle(("next refresh", "sweep")), strict=False))
    return [
        pytest.param(*point, heir, marks=() if (point, heir) in short else pytest.mark.long)
        for point, heir in product(points, ("next refresh", "sweep"))
    ]


@pytest.mark.parametrize(("left_at", "point", "heir"), _cleaning_up())
def test_killed_while_cleaning_up(site: Site, fault_report: FaultReport, left_at: str, point: str, heir: str) -> None:
    """Whoever cleans up after a killed refresh is killed as well; before the stage is fenced off, and after."""
    refresh(site, BASE)
    kill(fault_report, left_at, refresh, site, STRUCK)
    if heir == "sweep":
        kill(fault_report, point, sweep, site)
    else:
        kill(fault_report, point, refresh, site, Attempt("heir", STRUCK.days, "somebody else", STRUCK.planned))
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2]}
        refresh(site, NEXT)
        sweep(site)
        assert content(workspace) == {"1": [1], "2": [2], "3": [30]}
        check_all_settled(site, workspace)


@pytest.mark.parametrize(
    "point", [*(pytest.param(point, marks=pytest.mark.long) for point in ("result", "swapped")), "swap", "landed"]
)
def test_killed_while_the_table_is_made_anew(site: Site, fault_report: FaultReport, point: str) -> None:
    """Columns and rows are of one version, whoever dies: the refresh that drops a column, and the next one as well."""
    refresh(site, Attempt("base", {"1": [1], "2": [2]}, more=("extra",)))
    kill(fault_report, point, refresh, site, Attempt("struck", {"1": [10]}, full_refresh=True))
    with site.open() as workspace:
        is_new = point in AFTER
        assert content(workspace) == ({"1": [10]} if is_new else {"1": [1], "2": [2]})
        assert columns(workspace) == (["ds", "n"] if is_new else ["ds", "n", "extra"])
        refresh(site, Attempt("next", {"1": [100]}, "somebody else", more=("other",), full_refresh=True))
        assert (content(workspace), columns(workspace)) == ({"1": [100]}, ["ds", "n", "other"])
        sweep(site)
        check_all_settled(site, workspace)


def _short(points: tuple[str, ...], *short: str) -> list[object]:
    return [pytest.param(point, marks=() if point in short else pytest.mark.long) for point in points]


@pytest.mark.parametrize("point", _short(BEFORE + AFTER, "begin", "landed"))
def test_killed_while_apply_rebuilds_a_table(site: Site, fault_report: FaultReport, point: str) -> None:
    """``apply --refresh`` of a definition that lost a column; `diff` tells what is left to do, and ``apply`` does that."""
    declare(site, ("extra",))
    refresh(site, Attempt("base", {"1": [1], "2": [2]}, more=("extra",)))
    kill(fault_report, point, apply_with_refresh, site, Attempt("struck", {"1": [10]}, full_refresh=True))
    is_new = point in AFTER
    with site.open() as workspace:
        assert content(workspace) == ({"1": [10]} if is_new else {"1": [1], "2": [2]})
        assert columns(workspace) == (["ds", "n"] if is_new else ["ds", "n", "extra"])
        (found,) = differences(workspace, declare(site))
        assert found.change is (Change.UNCHANGED if is_new else Change.REBUILD)
        done = apply_with_refresh(site, Attempt("again", {"1": [100]}, "somebody else", full_refresh=True))
        assert done.outcome is (Outcome.UNCHANGED if is_new else Outcome.REFRESHED), done
        assert (content(workspace), columns(workspace)) == ({"1": [10 if is_new else 100]}, ["ds", "n"])
        sweep(site)
        check_all_settled(site, workspace)


RESTORING = ("opened", "restoring", "publishing", "swap", "swapped", *AFTER)


@pytest.mark.parametrize("point", _short(RESTORING, "landed"))
def test_killed_while_columns_are_restored(site: Site, fault_report: FaultReport, point: str) -> None:
    """``rollback --with-columns`` across a rebuild; that the definition does not follow is told, whoever was killed."""
    refresh(site, Attempt("base", {"1": [1], "2": [2]}, more=("extra",)))
    refresh(site, Attempt("anew", {"1": [10]}, full_refresh=True))
    kill(fault_report, point, restore, site, 1, "struck")
    is_old_again = point in AFTER
    with site.open() as workspace:
        assert content(workspace) == ({"1": [1], "2": [2]} if is_old_again else {"1": [10]})
        assert columns(workspace) == (["ds", "n", "extra"] if is_old_again else ["ds", "n"])
        sweep(site)
        (found,) = differences(workspace, declare(site))
        assert found.change is (Change.REBUILD if is_old_again else Change.UNCHANGED)
        restore(site, 1, "again")
        assert (content(workspace), columns(workspace)) == ({"1": [1], "2": [2]}, ["ds", "n", "extra"])
        refresh(site, Attempt("next", {"1": [100]}, full_refresh=True))
        assert (content(workspace), columns(workspace)) == ({"1": [100]}, ["ds", "n"])
        sweep(site)
        check_all_settled(site, workspace)


def kill(fault_report: FaultReport, point: str, target: Callable[..., object], *arguments: object) -> None:
    """Run something in a process that is killed at a point, and wait for its end."""
    process = victim(point, KILL, target, *arguments).process
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, f"it was not killed at {point}, but ended with {process.exitcode}"
    fault_report.injected("kill -9")
