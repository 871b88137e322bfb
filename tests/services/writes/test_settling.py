"""Stages that several people bring to their end at once: what one of them read of the ledger may be old already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError
from airflow_dynamic_tables.ledger.base import RefreshState, Stage, StageState
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, commit, run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, utc_now
from airflow_dynamic_tables.services.writes import leases, protocol, settling
from airflow_dynamic_tables.services.writes.publishing import publish_stage, read_result
from tests.support.pyarrow_job import write_numbers


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as opened:
        yield opened


@pytest.fixture
def request_(tmp_path: Path) -> RefreshRequest:
    (tmp_path / "t.yaml").write_text("dynamic_tables: [{name: t, freshness: 1 day, query: SELECT 1 AS x}]")
    (table,) = load_definitions(tmp_path / "t.yaml").tables.values()
    return RefreshRequest(table, {}, utc_now(), "t1", "o")


@pytest.fixture
def attempt(workspace: Workspace, request_: RefreshRequest) -> Attempt:
    begun = begin(workspace, request_)
    assert isinstance(begun, Attempt)
    write_numbers(begun.plan)
    return begun


def stage_of(workspace: Workspace) -> Stage:
    stage = workspace.ledger.get_stage("t1")
    assert stage is not None
    return stage


def state_of(workspace: Workspace) -> tuple[StageState, RefreshState, str | None]:
    refresh = workspace.ledger.get_refresh("t1")
    return stage_of(workspace).state, refresh.state, refresh.error


def test_a_commit_under_way_that_somebody_else_gave_up_already_is_not_deleted(
    workspace: Workspace, request_: RefreshRequest, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read as OPEN; meanwhile its owner began to commit, and another sweeper moved it to FENCING."""
    read_before = stage_of(workspace)
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "record_commit", lambda *_: False)
        commit(workspace, attempt)
    workspace.ledger.move_stage("t1", (StageState.COMMITTING,), StageState.FENCING)
    assert settling.settle(workspace, read_before, "abandoned") is StageState.COMMITTED
    assert [row["x"] for row in sample(workspace, request_.table.identifier, 10)] == [1, 2, 3]
    assert state_of(workspace) == (StageState.COMMITTED, RefreshState.SUCCEEDED, None)


def test_giving_up_what_lands_just_now_does_not_make_it_fail(
    workspace: Workspace, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow runs the failure callback elsewhere, while the task commits."""
    look_up = workspace.ledger.get_stage

    def slow_look(token: str) -> Stage | None:
        found = look_up(token)
        if found is not None and found.state is StageState.OPEN:
            commit(workspace, attempt)
        return found

    monkeypatch.setattr(workspace.ledger, "get_stage", slow_look)
    with pytest.raises(CommitRejectedError, match="Stage t1 is COMMITTED"):
        settling.abort(workspace, "t1", "the task missed its heartbeat")
    assert state_of(workspace) == (StageState.COMMITTED, RefreshState.SUCCEEDED, None)


def test_who_gave_a_stage_up_first_knew_why(workspace: Workspace, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: str) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("airflow_dynamic_tables.formats.iceberg.stage.delete_folder", die)
        with pytest.raises(SystemExit):
            settling.abort(workspace, attempt.plan.token, ValueError("DIVIDE_BY_ZERO"))
    settling.settle(workspace, stage_of(workspace), "abandoned")
    assert state_of(workspace)[1:] == (RefreshState.FAILED, "DIVIDE_BY_ZERO")


def test_who_lost_the_stage_before_it_was_recorded_leaves_no_trace(workspace: Workspace, request_: RefreshRequest) -> None:
    """A zombie that wakes up right after it opened its stage."""
    opened = leases.open_stage

    def open_and_sleep(workspace: Workspace, stage: Stage) -> None:
        opened(workspace, stage)
        settling.settle(workspace, stage, "superseded")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "open_stage", open_and_sleep)
        with pytest.raises(ConflictError, match="taken away from its owner"):
            begin(workspace, request_)
    assert workspace.ledger.list_refreshes() == []
    assert isinstance(run(workspace, RefreshRequest(request_.table, {}, utc_now(), "t2", "o"), write_numbers), Version)


def older_of(request: RefreshRequest) -> RefreshRequest:
    """Another refresh of the whole table, by somebody else, for three days before."""
    return replace(request, token="t2", owner="somebody else", schedule_time=request.schedule_time - timedelta(days=3))


def test_an_older_refresh_does_not_land_over_one_that_was_believed_dead(
    workspace: Workspace, request_: RefreshRequest, attempt: Attempt
) -> None:
    """It is beyond its last look at the ledger, and nobody fenced it off."""
    workspace.ledger.move_stage("t1", (StageState.OPEN,), StageState.ABORTED)

    def write_while_the_other_wakes_up(plan: RefreshPlan) -> None:
        write_numbers(plan, (7, 8))
        publish_stage(attempt.write.staged, attempt.plan, read_result(attempt.plan), lambda: None)

    skipped = run(workspace, older_of(request_), write_while_the_other_wakes_up)
    assert isinstance(skipped, Skipped)
    assert "would overwrite newer data" in str(skipped.reason)
    assert [row["x"] for row in sample(workspace, request_.table.identifier, 10)] == [1, 2, 3]
    refresh = workspace.ledger.get_refresh("t2")
    assert (refresh.state, refresh.reason_code) == (RefreshState.SKIPPED, ReasonCode.ALREADY_FRESH)


def test_a_table_that_is_dropped_while_it_is_refreshed_stays_dropped_until_the_next_refresh(
    workspace: Workspace, request_: RefreshRequest
) -> None:
    run(workspace, request_, write_numbers)

    def write_and_drop(plan: RefreshPlan) -> None:
        write_numbers(plan, (7, 8))
        workspace.catalog(request_.table.identifier.catalog).drop_table(request_.table.identifier.path)

    later = replace(request_, token="t2", schedule_time=utc_now())
    with pytest.raises(CommitRejectedError, match="was dropped meanwhile"):
        run(workspace, later, write_and_drop)
    again = run(workspace, replace(later, token="t3"), write_numbers)
    assert isinstance(again, Version)
    assert [row["x"] for row in sample(workspace, request_.table.identifier, 10)] == [1, 2, 3]
