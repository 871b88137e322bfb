"""A refresh is stopped, declared dead, and wakes up: it can write into its own stage and nothing else."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.ledger.base import StageState
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files, versions
from tests.support.faults.victims import STOP, Attempt, Child, Site, refresh, sweep, victim, when_leases_are_over

BASE = Attempt("base", {"1": [1], "2": [2]})
ZOMBIE = Attempt("zombie", {"1": [666], "3": [666]}, planned=("1", "3"))
POINTS = ("opened", "writing", "commit", "publishing")
HEIR = Attempt("heir", {"1": [10], "3": [30]}, "somebody else", planned=("1", "3"))


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
        assert error is not None
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
        assert stage is not None
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
