"""Dropping a table: not beside a refresh; what stays is told, and the next refresh makes it anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConflictError, QuarantinedError, SchemaEvolutionError, TableNotFoundError
from airflow_dynamic_tables.services.catalogs import create_view
from airflow_dynamic_tables.services.lifecycle.dropping import drop, drop_if_exists
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import LEASE
from airflow_dynamic_tables.services.writes.owner_markers import MARKS
from airflow_dynamic_tables.services.writes.quarantine import reject
from tests.support.changed_tables import NamedTable
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")
YAML = """
dynamic_tables:
- name: lake.sales.numbers
  freshness: 1 day
  query: SELECT 1 AS x
  expectations: [{row_count: {max_decrease: 50%}}]
"""


@pytest.fixture
def request_(tmp_path: Path) -> RefreshRequest:
    path = tmp_path / "sales.yaml"
    path.write_text(YAML)
    definitions = load_definitions(path)
    return RefreshRequest(definitions.tables[NUMBERS], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), "t1", "a test")


def test_a_dropped_table_is_made_anew_with_other_keys(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    other = replace(request_.table, comment="anew", partition_keys=("y",))
    with pytest.raises(SchemaEvolutionError):
        begin(workspace, replace(request_, token="t2", table=other))
    dropped = drop(workspace, NUMBERS)
    assert dropped.location is not None
    assert Path(dropped.location.removeprefix("file://")).is_dir(), "files stay"
    assert not dropped.is_still_read
    with pytest.raises(TableNotFoundError):
        drop(workspace, NUMBERS)
    version = run(workspace, replace(request_, token="t3"), lambda plan: write_numbers(plan, (7,)))
    assert version.number == 1
    assert [row["x"] for row in sample(workspace, NUMBERS, 10)] == [7]
    assert {refresh.token for refresh in workspace.ledger.list_refreshes(NUMBERS)} == {"t1", "t2", "t3"}


def test_a_table_that_is_being_refreshed_stays(workspace: Workspace, clock: Clock, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    begin(workspace, replace(request_, token="t2", owner="elsewhere"))
    with pytest.raises(ConflictError, match="is being refreshed by elsewhere"):
        drop(workspace, NUMBERS)
    assert len(sample(workspace, NUMBERS, 10)) == 3
    clock.time += 2 * LEASE
    drop(workspace, NUMBERS)  # its owner is gone


def test_what_is_in_quarantine_is_decided_first(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    with pytest.raises(QuarantinedError):
        run(workspace, replace(request_, token="t2"), lambda plan: write_numbers(plan, (1,)))
    with pytest.raises(ConflictError, match="dynamic-tables abort t2"):
        drop(workspace, NUMBERS)
    reject(workspace, "t2", "a test")
    drop(workspace, NUMBERS)


def test_what_is_no_dynamic_table_stays(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    view = TableIdentifier("lake", "sales", "few")
    create_view(workspace, view, "SELECT * FROM numbers")
    with pytest.raises(TableNotFoundError, match=r"lake\.sales\.few is no dynamic table"):
        drop(workspace, view)
    assert workspace.catalog("lake").table_exists(view.path)


def test_rows_that_a_plain_folder_keeps_are_told(workspace: Workspace, request_: RefreshRequest) -> None:
    folder = replace(request_.table, format="parquet", atomicity="none", expectations=())
    run(workspace, replace(request_, table=folder), write_numbers)
    dropped = drop(workspace, NUMBERS)
    assert dropped.is_still_read, "a table made anew has the old columns"


def test_what_is_not_there_is_no_error_when_asked_so(workspace: Workspace, request_: RefreshRequest) -> None:
    assert not drop_if_exists(workspace, NUMBERS).dropped
    run(workspace, request_, write_numbers)
    view = TableIdentifier("lake", "sales", "few")
    create_view(workspace, view, "SELECT * FROM numbers")
    with pytest.raises(TableNotFoundError, match="is no dynamic table"):
        drop_if_exists(workspace, view)
    assert drop_if_exists(workspace, NUMBERS).dropped


@pytest.mark.parametrize("table_format", ["iceberg", "parquet", "orc"])
def test_purged_files_are_gone_and_no_others(tmp_path: Path, workspace: Workspace, table_format: str) -> None:
    atomicity = "staged" if table_format == "iceberg" else "none"
    table = NamedTable(workspace, tmp_path, NUMBERS, table_format, atomicity)
    other = replace(table, name=TableIdentifier("lake", "sales", "other"))
    for one in (table, other):
        one.refresh(1, 2)
    folder = workspace.existing_table(NUMBERS).folder()
    dropped = drop(workspace, NUMBERS, purge=True)
    assert (dropped.location, dropped.purged.files > 2, dropped.purged.bytes > 0) == (None, True, True)
    assert not Path(folder.removeprefix("file://")).exists()
    assert workspace.ledger.list_stages() == []
    assert other.numbers() == [1, 2]
    assert table.refresh(7).number == 1
    assert table.numbers() == [7]


def test_files_that_may_be_of_others_are_not_purged(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    folder = workspace.existing_table(NUMBERS).folder()
    mark = Path(folder.removeprefix("file://")) / MARKS / "another"
    mark.write_text("")
    with pytest.raises(ConflictError, match="is refreshed by another installation"):
        drop(workspace, NUMBERS, purge=True)
    mark.unlink()
    assert len(sample(workspace, NUMBERS, 10)) == 3
    begin(workspace, replace(request_, token="t2", owner="elsewhere"))
    with pytest.raises(ConflictError, match="is being refreshed by elsewhere"):
        drop(workspace, NUMBERS, purge=True)
    assert len(sample(workspace, NUMBERS, 10)) == 3
