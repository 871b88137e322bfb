"""An expectation that compares rows with those of the partitions that a refresh does not replace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CommitRejectedError
from airflow_dynamic_tables.services.refresh.running import run
from tests.contracts.refreshing.place import MARCH, Place

pytestmark = pytest.mark.needs("states")

UNIQUE = Expectation("unique", Action.FAIL, unique=("n",), across_partitions=True)


@pytest.mark.sampled
def test_the_rows_that_were_compared_are_those_of_the_version_before(place: Place) -> None:
    plans: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        plans.append(plan)
        place.job(plan)

    def refresh(day: int, token: str, *, whole: bool = False) -> None:
        request = place.request(MARCH, token, catches_up=False, partitions=PartitionSet.of([{"ds": f"2024-03-{day:02d}"}]))
        request = replace(request, table=replace(request.table, expectations=(UNIQUE,)))
        request = replace(request, partitions=None, full_refresh=True) if whole else request
        assert isinstance(run(place.workspace, request, job), Version)

    place.present = {"2024-03-01": [1], "2024-03-02": [2]}
    refresh(1, "a")
    assert plans[-1].compared is None, "the table has no version"
    refresh(2, "b")
    compared = plans[-1].compared
    assert compared is not None
    assert (compared.identifier, compared.state is not None) == (str(place.table), True)
    place.at(Step.COMMIT, "c", lambda: refresh(2, "between"))
    with pytest.raises(CommitRejectedError, match="got another version while this refresh compared its rows"):
        refresh(1, "c")
    assert place.history()["c"][0] == "FAILED"
    refresh(1, "again")
    assert place.rows() == {1: [1], 2: [2]}
    refresh(1, "complete", whole=True)
    assert plans[-1].compared is None, "all rows are those of the refresh"
