"""A renamed table is the same table: nothing is lost, whatever happens in between, and nobody else's name is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.services.catalogs import create_view
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import rename, renamed
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.workspace import Workspace, why_suspended
from airflow_dynamic_tables.services.writes import protocol
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.changed_tables import NamedTable, keeps_data_and_history
from tests.support.clock import Clock

OTHER = TableIdentifier("lake", "sales", "other")


@pytest.fixture(params=["iceberg", "parquet", "orc"])
def table(request: pytest.FixtureRequest, tmp_path: Path, workspace: Workspace) -> NamedTable:
    atomicity = "staged" if request.param == "iceberg" else "none"
    return NamedTable(workspace, tmp_path, NUMBERS, request.param, atomicity)


@pytest.mark.sampled
def test_a_renamed_table_keeps_data_and_history(table: NamedTable) -> None:
    keeps_data_and_history(table)


@pytest.mark.sampled
@pytest.mark.parametrize("killed", ["rename_table", "move_folder", "ledger", "being_renamed"])
@pytest.mark.parametrize("again", [True, False])
def test_what_a_kill_cut_short_is_finished(
    table: NamedTable, clock: Clock, monkeypatch: pytest.MonkeyPatch, killed: str, again: bool
) -> None:
    table.refresh(1, 2)

    if killed == "move_folder" and table.format == "iceberg":
        return  # its files stay where they are

    def kill(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        catalog = table.workspace.catalog("lake")
        lifecycle = "airflow_dynamic_tables.services.lifecycle.registration"
        if killed == "rename_table":
            patched.setattr(type(catalog), "rename_table", kill)
        elif killed == "ledger":
            patched.setattr(SqlLedger, "rename_table", kill)
        else:
            patched.setattr(f"{lifecycle}.{'move_folder' if killed == 'move_folder' else '_renamed'}", kill)
        patched.setattr(protocol, "abort_stage", lambda *_: None)
        with pytest.raises(SystemExit):
            table.renamed("other")
    clock.time += 2 * LEASE
    if again or killed == "rename_table":
        other = table.renamed("other")
    else:
        other = replace(table, name=OTHER)
        other.refresh(5, day=2)
    assert [row for row in other.numbers() if row < 5] == [1, 2]
    assert len(table.workspace.ledger.list_refreshes(OTHER)) == 1 + (not again and killed != "rename_table")
    assert table.workspace.ledger.list_refreshes(NUMBERS) == []


def test_a_suspended_table_stays_suspended(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    suspend(version_bench.workspace, NUMBERS, "on holiday")
    rename(version_bench.workspace, NUMBERS, OTHER)
    assert "on holiday" in str(why_suspended(OTHER, version_bench.workspace.find_entry(OTHER)))


def test_a_table_without_a_version_is_renamed(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.begin(NUMBERS, "t1")
    with pytest.raises(ConflictError, match="is being refreshed by t1"):
        rename(workspace, NUMBERS, OTHER)
    assert workspace.catalog("lake").table_exists(NUMBERS.path)


def test_names_that_are_taken_or_wrong_are_refused(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.refresh(1)
    create_view(workspace, OTHER, "SELECT * FROM numbers")
    with pytest.raises(TableAlreadyExistsError):
        rename(workspace, NUMBERS, OTHER)
    for new, error in (
        (TableIdentifier("lake", "other", "numbers"), UnsupportedError),
        (TableIdentifier("else", "sales", "other"), UnsupportedError),
        (TableIdentifier("lake", "sales", "a\nb"), ConfigurationError),
    ):
        with pytest.raises(error):
            rename(workspace, NUMBERS, new)
    with pytest.raises(TableNotFoundError):
        rename(workspace, OTHER, TableIdentifier("lake", "sales", "third"))
    assert version_bench.numbers() == [1]


def test_a_new_name_leaves_out_what_stays() -> None:
    assert renamed(NUMBERS, "other") == renamed(NUMBERS, "sales.other") == renamed(NUMBERS, "lake.sales.other") == OTHER
    for name in ("a.lake.sales.other", "sales.", ""):
        with pytest.raises(ConfigurationError, match="name"):
            renamed(NUMBERS, name)


def test_the_history_of_an_earlier_table_of_the_name_stays(version_bench: VersionBench) -> None:
    workspace = version_bench.workspace
    version_bench.refresh(1)
    rename(workspace, NUMBERS, OTHER)
    version_bench.refresh(2)
    drop(workspace, OTHER)
    rename(workspace, NUMBERS, OTHER)
    assert len(workspace.ledger.list_refreshes(OTHER)) == 2
    assert workspace.ledger.last_stage(OTHER) is not None
    assert version_bench.numbers(table=OTHER) == [2]
