"""Kill -9 while what is in quarantine is published: it is published, or in quarantine as before."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.faults.test_kills import kill
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content
from tests.support.faults.victims import Attempt, Site, leave_in_quarantine, refresh, sweep

BASE = Attempt("base", {"1": [1], "2": [2]})
HELD = Attempt("held", {"1": [10]}, planned=("1",))


def publish_at(site: Site) -> Version:
    """Publish in this process."""
    with site.open() as workspace:
        return publish(workspace, HELD.token)


@pytest.fixture
def quarantined(site: Site) -> str:
    """The token of a stage in quarantine, beside a version that it was planned on."""
    refresh(site, BASE)
    leave_in_quarantine(site, HELD)
    return HELD.token


@pytest.mark.parametrize("sweeps", [True, False])
@pytest.mark.parametrize("point", ["swap", "swapped", "landed"])
def test_killed_while_it_is_published(site: Site, fault_report: FaultReport, quarantined: str, point: str, sweeps: bool) -> None:
    kill(fault_report, point, publish_at, site)
    new = {"1": [10], "2": [2]}
    with site.open() as workspace:
        assert content(workspace) == (new if point == "landed" else {"1": [1], "2": [2]})
        if sweeps:
            sweep(site)
            stage = workspace.ledger.get_stage(quarantined)
            assert stage is not None
            assert stage.state == (StageState.COMMITTED if point == "landed" else StageState.QUARANTINED)
        assert publish_at(site).token == quarantined
        assert content(workspace) == new
        check_all_settled(site, workspace)
