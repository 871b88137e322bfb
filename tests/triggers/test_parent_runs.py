"""What Airflow says of the runs of a parent, and what follows from that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.triggers.upstream import has_given_up
from tests.support.airflow_runs import AirflowRuns

PARENT = TableIdentifier("lake", "sales", "parent")
DAG = "dynamic_table__lake__sales__parent"
TICK = datetime(2024, 1, 2, tzinfo=UTC)
FAILED = (DAG, TICK, "failed")


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> AirflowRuns:
    found = AirflowRuns()
    found.install(monkeypatch)
    return found


@pytest.mark.parametrize(
    ("runs", "given_up"),
    [
        pytest.param([FAILED], True, id="its last try failed"),
        pytest.param([FAILED, (DAG, TICK - timedelta(days=1), "success")], True, id="the tick before was fine"),
        pytest.param([FAILED, ("dynamic_table__lake__sales__other", TICK, "running")], True, id="another table's runs"),
        pytest.param([(DAG, TICK, "running")], False, id="it has tries left, or asks about its quarantine"),
        pytest.param([(DAG, TICK, "queued")], False, id="cleared"),
        pytest.param([FAILED, (DAG, None, "running")], False, id="somebody refreshes it by hand"),
        pytest.param([FAILED, (DAG, TICK + timedelta(days=1), "queued")], False, id="a later run waits for its turn"),
        pytest.param([(DAG, TICK, "success")], False, id="marked success, or skipped"),
        pytest.param([(DAG, TICK - timedelta(days=1), "failed")], False, id="only the tick before failed"),
        pytest.param([(DAG, None, "failed")], False, id="only a run by hand failed"),
        pytest.param([], False, id="paused, or no DAG of this name"),
    ],
)
def test_a_parent_has_given_up_when_its_run_failed_and_nothing_of_it_is_under_way(
    airflow: AirflowRuns, runs: list[tuple[str, datetime | None, str]], given_up: bool
) -> None:
    airflow.runs = runs
    assert has_given_up(DAG, TICK.astimezone(ZoneInfo("Asia/Kolkata"))) is given_up


def test_an_airflow_that_does_not_answer_is_asked_again(airflow: AirflowRuns, caplog: pytest.LogCaptureFixture) -> None:
    airflow.runs = [FAILED]
    airflow.error = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"message": "gone"}))
    assert not has_given_up(DAG, TICK)
    assert f"Airflow does not say how the runs of {DAG} stand: API_SERVER_ERROR" in caplog.text
    airflow.error = None
    assert has_given_up(DAG, TICK)


def test_outside_of_airflow_nobody_is_asked() -> None:
    assert not has_given_up(DAG, TICK)
