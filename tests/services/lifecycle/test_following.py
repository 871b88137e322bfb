"""A table that says its former name keeps its data, whoever deploys it first; nothing is made anew in their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services.deployments.diffing import ApplyOutcome, apply, differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.lifecycle.registration import Registration, register
from airflow_dynamic_tables.services.lifecycle.suspending import suspend
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_numbers
from tests.support.schedulers.airflow import StandIn, stand_in

OLD, NEW = (TableIdentifier("lake", "sales", name) for name in ("old", "new"))


def declared(folder: Path, name: str, more: str = "", others: str = "") -> Definitions:
    table = f"{{name: lake.sales.{name}, freshness: 1 day, query: SELECT 1 AS x{more}}}"
    (folder / "sales.yaml").write_text(f"dynamic_tables: [{table}{others}]")
    return load_definitions(folder / "sales.yaml")


def refresh(workspace: Workspace, definitions: Definitions, number: int) -> object:
    (table,) = definitions.tables.values()
    request = RefreshRequest(table, {}, datetime(2024, 3, number, tzinfo=UTC), str(uuid4()), "a test")
    return run(workspace, request, lambda plan: write_numbers(plan, (number,)))


@pytest.fixture
def renamed(workspace: Workspace, tmp_path: Path) -> Definitions:
    """A table with rows that is declared by another name now."""
    refresh(workspace, declared(tmp_path, "old"), 1)
    return declared(tmp_path, "new", ", renamed_from: old")


def test_apply_renames(workspace: Workspace, renamed: Definitions) -> None:
    (found,) = differences(workspace, renamed)
    assert (found.change, found.reason) == (Change.METADATA, f"it is renamed from {OLD}, with its data")
    assert apply(workspace, found, renamed.tables[NEW]).outcome is ApplyOutcome.REGISTERED
    assert sample(workspace, NEW, 9) == [{"x": 1}]
    assert not workspace.catalog("lake").table_exists(OLD.path)
    (again,) = differences(workspace, renamed)
    assert again.change is Change.UNCHANGED, "what it was called may stay in the file"
    assert [one.version for one in workspace.ledger.list_refreshes(NEW)] == [1]


def test_so_does_the_first_refresh(workspace: Workspace, renamed: Definitions) -> None:
    refresh(workspace, renamed, 2)
    assert [version.number for version in workspace.existing_table(NEW).versions()] == [1, 2]
    assert workspace.catalog("lake").list_dynamic_tables("sales") == ["new"]


def test_what_was_suspended_stays_so(workspace: Workspace, renamed: Definitions) -> None:
    suspend(workspace, OLD, "it costs too much")
    assert isinstance(refresh(workspace, renamed, 2), Skipped)
    assert workspace.catalog("lake").list_dynamic_tables("sales") == ["new"]
    assert sample(workspace, NEW, 9) == [{"x": 1}]


def test_a_table_that_was_renamed_is_registered_once(workspace: Workspace, renamed: Definitions) -> None:
    assert register(workspace, renamed.tables[NEW]) is Registration.ALTERED
    assert register(workspace, renamed.tables[NEW]) is Registration.UNCHANGED


def test_a_former_name_that_nobody_knows_is_none(workspace: Workspace, tmp_path: Path) -> None:
    definitions = declared(tmp_path, "new", ", renamed_from: old")
    (found,) = differences(workspace, definitions)
    assert found.change is Change.NEW
    assert register(workspace, definitions.tables[NEW]) is Registration.CREATED


@pytest.mark.parametrize(
    ("name", "others", "told"),
    [
        ("old", ", {name: lake.sales.old, freshness: 1 day, query: SELECT 1 AS x}", "lake.sales.old is still declared in "),
        ("new", "", "lake.sales.new is still declared in "),
        ("other.old", "", "a table is renamed within its database; 'other.old' is not in lake.sales"),
        (
            "old",
            ", {name: lake.sales.b, renamed_from: old, freshness: 1 day, query: SELECT 1 AS x}",
            "lake.sales.new was renamed from lake.sales.old, too",
        ),
    ],
)
def test_names_that_others_have(tmp_path: Path, name: str, others: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=f"sales.yaml:1:[0-9]+: {told}"):
        declared(tmp_path, "new", f", renamed_from: {name}", others)


@pytest.fixture
def airflow() -> Iterator[StandIn]:
    """An Airflow that has the DAGs of both names, the new one paused, as new DAGs are."""
    with stand_in() as airflow:
        airflow.add(OLD.workflow_id, "DynamicTableRefreshOperator")
        airflow.add(NEW.workflow_id, "DynamicTableRefreshOperator", is_paused=True)
        yield airflow


def reaching(workspace: Workspace, airflow: StandIn) -> Workspace:
    return replace(workspace, settings=replace(workspace.settings, connections=airflow.connections))


def test_the_dag_of_the_new_name_goes_on(workspace: Workspace, renamed: Definitions, airflow: StandIn) -> None:
    airflow.stale.add(OLD.workflow_id)
    register(reaching(workspace, airflow), renamed.tables[NEW])
    assert not airflow.paused[NEW.workflow_id]
    airflow.paused[NEW.workflow_id] = True
    register(reaching(workspace, airflow), renamed.tables[NEW])
    assert airflow.paused[NEW.workflow_id], "a user paused it since"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("former", "new", "told"),
    [
        (True, True, f"The DAG {OLD.workflow_id} was paused; see that {NEW.workflow_id}"),
        (False, None, f"The DAG {NEW.workflow_id} of the new name may come up paused."),
        (None, True, f"The DAG {NEW.workflow_id} of the new name may come up paused."),
        (None, False, ""),
    ],
)
def test_where_it_is_not_known_to_go_on_that_is_said(
    workspace: Workspace,
    renamed: Definitions,
    airflow: StandIn,
    caplog: pytest.LogCaptureFixture,
    former: bool | None,
    new: bool | None,
    told: str,
) -> None:
    states = {OLD.workflow_id: former, NEW.workflow_id: new}
    airflow.paused = {dag_id: paused for dag_id, paused in states.items() if paused is not None}
    register(reaching(workspace, airflow), renamed.tables[NEW])
    assert airflow.paused.get(NEW.workflow_id) is new
    assert told in caplog.text
    assert bool(caplog.records) is bool(told)


def test_without_a_connection_to_airflow_it_is_said(
    workspace: Workspace, renamed: Definitions, caplog: pytest.LogCaptureFixture
) -> None:
    register(workspace, renamed.tables[NEW])
    assert f"airflow dags unpause {NEW.workflow_id}" in caplog.text
