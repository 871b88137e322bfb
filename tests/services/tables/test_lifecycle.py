"""Dynamic tables in the catalog: when one is altered, and that a suspended one stays suspended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import Asked, CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import FRESHNESS_THRESHOLD, Freshness
from airflow_dynamic_tables.definitions.cache import Cache, restored
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions, DynamicTable
from airflow_dynamic_tables.services.lifecycle.registration import Registration, ensure
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, why_suspended
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")
CATALOGS = {"sql": None, "memory": "catalogs: [{name: lake, type: memory}]"}


@pytest.fixture(params=CATALOGS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    environ = {"AIRFLOW_HOME": str(tmp_path)}
    settings = embedded_settings(environ)
    if text := CATALOGS[request.param]:
        (tmp_path / "catalogs.yaml").write_text(text)
        settings = replace(settings, catalogs_file=tmp_path / "catalogs.yaml")
    with open_workspace(settings) as opened:
        yield opened


def numbers(folder: Path, more: str = "", threshold: Freshness = FRESHNESS_THRESHOLD) -> DynamicTable:
    """The table as YAML that says a little more means it."""
    path = folder / "sales.yaml"
    path.write_text(
        "defaults: {catalog: lake, database: sales}\n"
        f"dynamic_tables: [{{name: numbers, freshness: 1 day, query: SELECT 1 AS x{more}}}]\n"
    )
    return load_definitions(path, conventions=Conventions(threshold=threshold), cache=Cache(None)).tables[NUMBERS]


def entry(workspace: Workspace) -> CatalogDynamicTable:
    table = workspace.catalog("lake").get_table(NUMBERS.path)
    assert isinstance(table, CatalogDynamicTable)
    return table


def put(workspace: Workspace, state: JobState) -> None:
    table = entry(workspace)
    changed = replace(table, refresh_handler=replace(table.refresh_handler, job_state=state))
    workspace.catalog("lake").alter_table(NUMBERS.path, changed)


def test_the_catalog_gives_the_definition_back(workspace: Workspace, tmp_path: Path) -> None:
    table = numbers(
        tmp_path, ", spark: {conf: {a.b: 1}}, timezone: Europe/Berlin, columns: {x: one}, expectations: [{not_null: [x]}]"
    )
    assert ensure(workspace, table)[1] is Registration.CREATED
    declaration = entry(workspace).definition
    assert declaration is not None
    assert restored(declaration) == replace(table, path=Path(), line=0, file="", text="")


@pytest.mark.parametrize(
    "more",
    [
        ", spark: {conf: {a.b: 1}}",
        ", timezone: Europe/Berlin",
        ", schedule: 0 6 * * *",
        ", expectations: [{not_null: [x]}]",
        ", columns: {x: one}",
        ", retries: 2",
        ", pool: spark",
        ", comment: One",
    ],
)
def test_a_table_is_altered_when_its_definition_changed_and_only_then(workspace: Workspace, tmp_path: Path, more: str) -> None:
    assert ensure(workspace, numbers(tmp_path))[1] is Registration.CREATED
    assert ensure(workspace, numbers(tmp_path))[1] is Registration.UNCHANGED
    assert ensure(workspace, numbers(tmp_path, more))[1] is Registration.ALTERED
    assert ensure(workspace, numbers(tmp_path, more))[1] is Registration.UNCHANGED


def test_where_a_definition_stands_is_no_change(workspace: Workspace, tmp_path: Path) -> None:
    table = numbers(tmp_path)
    ensure(workspace, table)
    assert ensure(workspace, replace(table, path=tmp_path / "other.yaml", line=77))[1] is Registration.UNCHANGED


def test_an_entry_without_its_definition_is_altered_once(workspace: Workspace, tmp_path: Path) -> None:
    table = numbers(tmp_path)
    ensure(workspace, table)
    workspace.catalog("lake").alter_table(NUMBERS.path, replace(entry(workspace), definition=None))
    assert ensure(workspace, table)[1] is Registration.ALTERED
    assert entry(workspace).definition is not None
    assert ensure(workspace, table)[1] is Registration.UNCHANGED


@pytest.mark.parametrize("more", ["", ", comment: New"])
@pytest.mark.parametrize("asked", [Asked.REGISTER, Asked.REFRESH, Asked.FORCED_REFRESH])
def test_only_a_command_resumes(workspace: Workspace, tmp_path: Path, asked: Asked, more: str) -> None:
    ensure(workspace, numbers(tmp_path), Asked.FORCED_REFRESH)
    assert why_suspended(NUMBERS, workspace.find_entry(NUMBERS)) is None
    put(workspace, JobState.SUSPENDED)
    ensure(workspace, numbers(tmp_path, more), asked)
    assert why_suspended(NUMBERS, workspace.find_entry(NUMBERS))


def test_what_runs_is_not_initialized_again(workspace: Workspace, tmp_path: Path) -> None:
    ensure(workspace, numbers(tmp_path), Asked.FORCED_REFRESH)
    assert ensure(workspace, numbers(tmp_path))[1] is Registration.UNCHANGED
    assert entry(workspace).refresh_handler.job_state is JobState.RUNNING


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED])
def test_another_threshold_switches_the_mode_and_is_told_once(
    workspace: Workspace, tmp_path: Path, state: JobState, caplog: pytest.LogCaptureFixture
) -> None:
    batch, always = numbers(tmp_path), numbers(tmp_path, threshold=Freshness.parse("2 days"))
    ensure(workspace, batch)
    put(workspace, state)
    told: list[str] = []
    for table, before, now, why in (
        (always, "FULL", "CONTINUOUS", "freshness 1 day is below the threshold of 2 days"),
        (batch, "CONTINUOUS", "FULL", "freshness 1 day is not below the threshold of 30 minutes"),
    ):
        assert [ensure(workspace, table)[1] for _ in range(2)] == [Registration.ALTERED, Registration.UNCHANGED]
        told.append(f"lake.sales.numbers changes from {before} to {now}: {why}.")
        assert [message for message in caplog.messages if "changes from" in message] == told
        handler = entry(workspace).refresh_handler
        assert (handler.actual_refresh_mode, handler.job_state) == (now, state), "only a command suspends or resumes"
        assert handler.job_detail["workflowId"] == table.workflow_id, "the same DAG, with another schedule"


def test_a_switch_keeps_rows_and_history(tmp_path: Path) -> None:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        batch = numbers(tmp_path)
        run(workspace, RefreshRequest(batch, {}, datetime(2024, 1, 1, tzinfo=UTC), "t1", "test"), write_numbers)
        lake_table = workspace.table(NUMBERS, batch.format)
        before = (lake_table.versions(), lake_table.sample(9), entry(workspace).location)
        for threshold in ("2 days", "30 minutes"):
            ensure(workspace, numbers(tmp_path, threshold=Freshness.parse(threshold)))
            assert (lake_table.versions(), lake_table.sample(9), entry(workspace).location) == before
        assert [refresh.token for refresh in workspace.ledger.list_refreshes(NUMBERS)] == ["t1"]
