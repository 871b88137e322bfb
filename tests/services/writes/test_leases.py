"""A lease is kept as long as it can be, and whoever loses it hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, utc_now
from airflow_dynamic_tables.services.writes import leases
from airflow_dynamic_tables.services.writes.leases import current_process, lease_kept

READ_ONLY = """
CREATE TRIGGER read_only BEFORE UPDATE ON dt_stages
BEGIN SELECT RAISE(ABORT, 'cannot execute UPDATE in a read-only transaction'); END
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """Its leases last half a second; stage t1 is open."""
    monkeypatch.setattr(leases, "LEASE", timedelta(seconds=0.5))
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as opened:
        now = utc_now()
        table = TableIdentifier("lake", "sales", "t")
        opened.ledger.open_stage(Stage("t1", table, "file:///stage", "owner", current_process(), now, now))
        yield opened


def lease_until(workspace: Workspace) -> float:
    stage = workspace.ledger.get_stage("t1")
    return stage.lease_until.timestamp()


def wait_for_renewal(workspace: Workspace) -> None:
    before = lease_until(workspace)
    for _ in range(6_000):
        if lease_until(workspace) > before:
            return
        Event().wait(0.01)
    raise TimeoutError("the lease is not renewed")


def test_an_error_of_the_ledger_is_survived(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that fails over is read-only for a while; what it answers is no outage."""
    monkeypatch.setattr(f"{leases.__name__}.time", SimpleNamespace(monotonic=lambda: 0.0))  # however slow this machine is
    database = Database(workspace.settings.database_url)
    with database.transaction() as connection:
        connection.exec_driver_sql(READ_ONLY)
    lost = Event()
    with lease_kept(workspace, "t1", lost.set):
        while "Could not renew the lease of stage t1." not in caplog.messages:
            Event().wait(0.01)
        with database.transaction() as connection:
            connection.exec_driver_sql("DROP TRIGGER read_only")
        wait_for_renewal(workspace)
    assert not lost.is_set()


def test_who_cannot_keep_the_lease_is_stopped(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    with Database(workspace.settings.database_url).transaction() as connection:
        connection.exec_driver_sql(READ_ONLY)
    lost = Event()
    with lease_kept(workspace, "t1", lost.set):
        assert lost.wait(120)
    assert "The lease of stage t1 is over; its refresh is stopped." in caplog.messages
    assert lease_until(workspace) < utc_now().timestamp()


def test_a_commit_that_hangs_loses_its_lease(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "COMMIT_PATIENCE", timedelta(seconds=1))
    lost = Event()
    with lease_kept(workspace, "t1", lost.set):
        wait_for_renewal(workspace)
        workspace.ledger.move_stage("t1", (StageState.OPEN,), StageState.COMMITTING)
        assert lost.wait(120)
        ended = lease_until(workspace)
        Event().wait(0.5)
        assert lease_until(workspace) == ended


def test_who_has_committed_has_lost_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks once more while the body is on its way out."""
    lost, looked, get_stage = Event(), Event(), workspace.ledger.get_stage

    def noted(token: str) -> Stage | None:
        looked.set()
        return get_stage(token)

    monkeypatch.setattr(workspace.ledger, "get_stage", noted)
    with lease_kept(workspace, "t1", lost.set):
        workspace.ledger.move_stage("t1", (StageState.OPEN,), StageState.COMMITTED)
        assert looked.wait(120)
        assert not lost.wait(0.5)
