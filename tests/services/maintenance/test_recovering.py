"""A table that a kill left halfway is whole again when somebody says so, and what is alive is left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.services.maintenance import sweeping
from airflow_dynamic_tables.services.maintenance.sweeping import recover
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.changed_tables import NamedTable
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers


def test_what_a_dead_owner_left_is_ended_and_what_lives_is_not(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.refresh(1)
    begin(workspace, version_bench.request(NUMBERS, "dead"))
    living = recover(workspace, NUMBERS)
    assert (living.aborted, living.state) == ((), JobState.RUNNING)
    assert "Refresh dead of dead is at work since" in living.left[0]
    version_bench.ahead = 2 * LEASE
    recovered = recover(workspace, NUMBERS)
    assert (recovered.aborted, recovered.left) == (("dead",), ())
    assert recover(workspace, NUMBERS).aborted == ()
    assert version_bench.numbers() == [1]


def test_a_commit_that_landed_unnoticed_is_completed(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    run(workspace, version_bench.request(NUMBERS, "landed"), write_numbers)
    workspace.ledger.move_stage("landed", (StageState.COMMITTED,), StageState.COMMITTING)
    version_bench.ahead = 2 * LEASE
    assert recover(workspace, NUMBERS).completed == ("landed",)
    assert version_bench.numbers() == [1, 2, 3]


def test_what_cannot_be_ended_now_is_told(version_bench: VersionBench, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = version_bench.workspace
    begin(workspace, version_bench.request(NUMBERS, "dead"))
    version_bench.ahead = 2 * LEASE

    def away(*_: Any) -> None:
        raise CatalogUnavailableError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(sweeping, "settle", away)
        assert recover(workspace, NUMBERS).left == ("Refresh dead cannot be ended now: the store is away",)
    assert recover(workspace, NUMBERS).aborted == ("dead",)


def test_a_rename_is_finished(tmp_path: Path, workspace: Workspace, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    table = NamedTable(workspace, tmp_path, NUMBERS, "parquet", "none")
    table.refresh(1, 2)

    def away(*_: Any) -> None:
        raise CatalogUnavailableError("the ledger is away")

    with monkeypatch.context() as patched:
        patched.setattr(SqlLedger, "rename_table", away)
        with pytest.raises(CatalogUnavailableError):
            table.renamed("other")
    clock.time += 2 * LEASE
    other = replace(table, name=TableIdentifier("lake", "sales", "other"))
    assert recover(workspace, other.name).renamed_from == str(NUMBERS)
    assert recover(workspace, other.name).renamed_from == ""
    assert other.numbers() == [1, 2]
    assert len(workspace.ledger.list_refreshes(other.name)) == 1


def test_only_a_dynamic_table_is_recovered(workspace: Workspace) -> None:
    with pytest.raises(TableNotFoundError):
        recover(workspace, NUMBERS)
