"""A write is stopped, declared dead, and wakes up: it can write into its own stage and nothing else."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.ledger.base import StageState
from tests.support.faults.places import PLACES, Place
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files, versions
from tests.support.faults.victims import STOP, Attempt, Child, Site, refresh, sweep, victim, when_leases_are_over
from tests.support.faults.writes import Compaction, Create, create

BASE = Attempt("base", {"1": [1], "2": [2]})
ZOMBIE = Attempt("zombie", {"1": [666], "3": [666]}, planned=("1", "3"))
POINTS = ("opened", "writing", "commit", "publishing")
HEIR = Attempt("heir", {"1": [10], "3": [30]}, "another owner", planned=("1", "3"))


def stopped(fault_report: FaultReport, site: Site, point: str) -> Child:
    """A refresh that was stopped at a point."""
    child = victim(point, STOP, refresh, site, ZOMBIE)
    child.wait_until_stopped()
    fault_report.injected("SIGSTOP")
    return child


@pytest.mark.sampled
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize(
    ("site", "point"),
    [
        *(("sqlite", point) for point in POINTS),
        *(("delta", point) for point in POINTS[-2:]),
        *(pytest.param("jdbc", point, marks=pytest.mark.postgres) for point in POINTS[-2:]),
        *(pytest.param("postgres", point, marks=pytest.mark.postgres) for point in (*POINTS, "swap")),
    ],
    indirect=["site"],
)
def test_a_zombie_cannot_commit(site: Site, fault_report: FaultReport, first: bool, point: str) -> None:
    if not first:
        refresh(site, BASE)
    new = {**({} if first else {"2": [2]}), "1": [10], "3": [30]}
    zombie = stopped(fault_report, site, point)
    refresh(site, HEIR, when_leases_are_over)
    with site.open() as workspace:
        assert content(workspace) == dict(sorted(new.items()))
        zombie.wake()
        _, error = zombie.answer()
        # It finds its stage taken away or, on its way there, that its files are gone.
        assert error.startswith(("CommitRejectedError: Stage zombie is ABORT", "ConflictError: Stage zombie", "StageRejected"))
        assert content(workspace) == dict(sorted(new.items()))
        assert [version.token for version in versions(workspace)] == (["heir"] if first else ["base", "heir"])
        sweep(site)
        check_all_settled(site, workspace)


def test_a_first_commit_that_was_given_up_lands_no_more(site: Site, fault_report: FaultReport) -> None:
    """It was stopped between its leave to publish and the swap; the table was there already, so it could be fenced off."""
    zombie = stopped(fault_report, site, "publishing")
    assert sweep(site, when_leases_are_over).aborted == ("zombie",)
    assert not data_files(site, "zombie")
    with site.open() as workspace:
        assert content(workspace) == {}
        zombie.wake()
        _, error = zombie.answer()
        assert error is not None
        assert content(workspace) == {}
        check_all_settled(site, workspace)
        assert refresh(site, HEIR).number == 1


@pytest.mark.large
@pytest.mark.parametrize("site", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_a_zombie_that_holds_a_lock_is_cut_off(site: Site, fault_report: FaultReport) -> None:
    """Stopped inside its transaction, it would keep everybody from the table until it wakes up; the server ends its session."""
    refresh(site, BASE)
    hasty = Site(site.home, f"{site.database_url}?options=-c%20idle_in_transaction_session_timeout%3D2s")
    zombie = stopped(fault_report, hasty, "swapped")
    refresh(site, HEIR, when_leases_are_over)
    with site.open() as workspace:
        zombie.wake()
        _, error = zombie.answer()
        assert error is not None
        assert content(workspace) == {"1": [10], "2": [2], "3": [30]}
        stage = workspace.ledger.get_stage("zombie")
        assert stage.state is StageState.ABORTED
        sweep(site)
        check_all_settled(site, workspace)


@pytest.mark.long  # everybody else waits a minute for SQLite's lock
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_a_zombie_within_a_transaction_of_sqlite_still_commits(site: Site, fault_report: FaultReport) -> None:
    """Nobody else can change anything meanwhile, so nothing can go wrong."""
    refresh(site, BASE)
    zombie = stopped(fault_report, site, "swap")
    with pytest.raises(CatalogUnavailableError, match="database is locked"):
        refresh(site, HEIR, when_leases_are_over)
    zombie.wake()
    assert zombie.answer()[0].token == "zombie"
    with site.open() as workspace:
        assert content(workspace) == {"1": [666], "2": [2], "3": [666]}
        check_all_settled(site, workspace)


_IN_CATALOG = ("opened", "planned", "commit", "publishing", "naming")
_CREATING = {
    **dict.fromkeys(("sqlite", "postgres", "delta"), _IN_CATALOG),
    "jdbc": ("planned", "publishing"),
    "glue/iceberg": ("naming-update", "naming-create", "naming-delete"),
}
_BASE = {("sqlite", "naming"), ("sqlite", "publishing"), ("jdbc", "publishing"), ("glue/iceberg", "naming-update")}


@pytest.mark.parametrize(
    ("site", "place", "step"),
    [
        pytest.param(
            place.site,
            place,
            step,
            id=f"{place.site}-{step}",
            marks=(*place.marks, *(() if (place.site, step) in _BASE else (pytest.mark.large,))),
        )
        for place in PLACES
        for step in _CREATING.get(place.site, ())
    ],
    indirect=["site"],
)
def test_a_creator_that_wakes_up_too_late_changes_nothing(site: Site, place: Place, step: str, fault_report: FaultReport) -> None:
    """It is stopped until its lease is over, and another process has given up what it did, or finished it."""
    write = Create()
    sleeper = victim(step, STOP, write.run, site)
    sleeper.wait_until_stopped()
    fault_report.injected("stopped")
    sweep(site, when_leases_are_over)
    create(site, Attempt("next", {"3": [30]}))
    sleeper.wake()
    made, error = sleeper.answer()
    assert (made is None) == (error is not None) == (not place.is_decided(write, step)), error
    with site.open() as workspace:
        assert content(workspace) == {"3": [30]}
        sweep(site)
        check_all_settled(site, workspace)


@pytest.mark.parametrize(
    ("site", "step"),
    [
        ("sqlite", "publishing"),
        pytest.param("sqlite", "opened", marks=pytest.mark.large),
        *(pytest.param("postgres", step, marks=[pytest.mark.postgres, pytest.mark.large]) for step in ("opened", "publishing")),
        pytest.param("hive/parquet", "swap", marks=pytest.mark.metastore),
        pytest.param("hive/parquet", "publishing", marks=[pytest.mark.metastore, pytest.mark.large]),
    ],
    indirect=["site"],
)
def test_a_zombie_that_compacts_publishes_nothing(site: Site, step: str, fault_report: FaultReport) -> None:
    """A refresh takes the stage away of a compaction that sleeps, which wakes up when the refresh is over."""
    write = Compaction()
    write.prepare(site)
    zombie = victim(step, STOP, write.run, site)
    zombie.wait_until_stopped()
    fault_report.injected("SIGSTOP")
    assert refresh(site, Attempt("next", {"1": [10]}, "another owner", ("1",))).number == 2
    zombie.wake()
    assert zombie.answer() == (0, None)
    sweep(site)
    with site.open() as workspace:
        assert content(workspace) == {**write.old, "1": [10]}
        assert [version.number for version in versions(workspace)] == [1, 2]
        check_all_settled(site, workspace)
