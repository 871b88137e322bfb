"""CREATE TABLE AS from begin to end, with a job that writes by PyArrow; what happens when something goes wrong between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Rebuild, TableLayout
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import (
    ConflictError,
    JobFailedError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
)
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services import catalogs as listing
from airflow_dynamic_tables.services.ctas.running import Submit, create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.maintenance.sweeping import ORPHAN_AGE, expire, sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")


def wanted(purpose: Purpose = Purpose.CREATE, query: str = "SELECT 1 AS x", table: TableIdentifier = NUMBERS) -> WantedTable:
    return WantedTable(table, query, ("lake", "sales"), QueryPlace(Path("query"), query), purpose)


def create(
    workspace: Workspace, token: str, purpose: Purpose = Purpose.CREATE, job: Submit = write_numbers, query: str = "SELECT 1 AS x"
) -> Created:
    return create_table_as(workspace, Definitions(), wanted(purpose, query), (token, f"owner of {token}"), job)


def numbers(workspace: Workspace) -> list[int]:
    return [row["x"] for row in sample(workspace, NUMBERS, 10)]


def test_a_table_can_be_replaced_by_a_query_of_itself(workspace: Workspace) -> None:
    create(workspace, "t1")
    plans: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        plans.append(plan)
        write_numbers(plan, (2, 4, 6))

    create(workspace, "t2", Purpose.CREATE_OR_REPLACE, job, "SELECT 2 * x AS x FROM numbers")
    assert [source.identifier for source in plans[0].sources] == [str(NUMBERS)]
    assert numbers(workspace) == [2, 4, 6]


def test_a_table_that_cannot_get_other_keys_is_not_told_of_a_definition(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(workspace, "t1")
    fixed = TableLayout((), ("ds",), rebuild=Rebuild.NOTHING, limit="The catalog cannot change keys.")
    monkeypatch.setattr(IcebergTable, "layout", lambda _: fixed)
    with pytest.raises(SchemaEvolutionError) as error:
        create(workspace, "t2", Purpose.CREATE_OR_REPLACE)
    assert str(error.value) == (
        "lake.sales.numbers is partitioned by (ds), and is to be by (). The catalog cannot change keys. Keep its keys, or drop "
        "the table (dynamic-tables drop) and make it again."
    )


def test_create_or_replace_makes_a_table_that_is_not_there(workspace: Workspace) -> None:
    assert create(workspace, "t1", Purpose.CREATE_OR_REPLACE).outcome is CtasOutcome.CREATED


def test_a_definition_of_the_name_that_is_registered_meanwhile_wins(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text("dynamic_tables: [{name: lake.sales.numbers, freshness: 1 day, query: SELECT 1 AS x}]")
    definitions = load_definitions(tmp_path / "sales.yaml")
    request = RefreshRequest(definitions.tables[NUMBERS], {}, workspace.now(), token="refresh", owner="dag/run/refresh")

    def job(plan: RefreshPlan) -> None:
        with pytest.raises(ConflictError, match=r"lake.sales.numbers is being created by owner of t1 since"):
            run(workspace, request, write_numbers)
        write_numbers(plan)

    with pytest.raises(TableAlreadyExistsError, match="created by another client"):
        create(workspace, "t1", job=job)
    run(workspace, replace(request, token="again"), lambda plan: write_numbers(plan, (9,)))
    assert numbers(workspace) == [9]


def test_earlier_versions_of_a_replaced_table_expire(workspace: Workspace, clock: Clock) -> None:
    for number in range(14):
        create(workspace, f"t{number}", Purpose.CREATE_OR_REPLACE, partial(write_numbers, numbers=(number,)))
    clock.time += timedelta(days=8) + ORPHAN_AGE
    before = len(workspace.existing_table(NUMBERS).versions())
    expire(workspace, NUMBERS)
    assert len(workspace.existing_table(NUMBERS).versions()) < before == 14
    assert numbers(workspace) == [13]
    assert sweep(workspace).failed == ()


def test_the_history_tells_how_a_table_was_made(workspace: Workspace) -> None:
    create(workspace, "t1")
    assert [(table.identifier, table.kind) for table in listing.tables(workspace, "lake.sales")] == [(str(NUMBERS), "table")]
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.action, refresh.reason_code) == ("SUCCEEDED", "INITIALIZE", "CREATED_AS")
    assert refresh.data_timestamp is None


def test_the_history_tells_why_a_table_was_not_made(workspace: Workspace) -> None:
    def fail(_: RefreshPlan) -> None:
        raise JobFailedError("DIVIDE_BY_ZERO")

    with pytest.raises(JobFailedError):
        create(workspace, "t1", job=fail)
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.error, refresh.reason) == (RefreshState.FAILED, "DIVIDE_BY_ZERO", "made of a query")
