"""What people do to tables of a REST catalog, from end to end: refresh, suspend, roll back, make of a query, drop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import JobFailedError, TableAlreadyExistsError, UnsupportedError
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.iceberg_rest.server import IcebergRest
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")


@pytest.fixture
def workspace(tmp_path: Path, empty_state: Path, iceberg_rest: IcebergRest) -> Iterator[Workspace]:
    """A REST catalog ``lake``, which chooses where its tables lie."""
    iceberg_rest.empty()
    file = tmp_path / "catalogs.yaml"
    file.write_text(f"catalogs:\n- {{name: lake, type: iceberg, connection-params: {{uri: '{iceberg_rest.uri}'}}}}\n")
    state = shutil.copy(empty_state, tmp_path / "state.db")
    with open_workspace(WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", file)) as opened:
        yield opened


def create(workspace: Workspace, token: str, purpose: Purpose = Purpose.CREATE, numbers: tuple[int, ...] = (1, 2, 3)) -> Created:
    wanted = WantedTable(NUMBERS, "SELECT 1 AS x", ("lake", "sales"), QueryPlace(Path("query"), "SELECT 1 AS x"), purpose)
    return create_table_as(workspace, Definitions(), wanted, (token, token), partial(write_numbers, numbers=numbers))


def rows(workspace: Workspace) -> list[int]:
    return [row["x"] for row in sample(workspace, NUMBERS, 10)]


def test_a_table_is_made_of_a_query_and_replaced(workspace: Workspace) -> None:
    assert create(workspace, "t1").outcome is CtasOutcome.CREATED
    assert rows(workspace) == [1, 2, 3]
    with pytest.raises(TableAlreadyExistsError):
        create(workspace, "t2")
    assert create(workspace, "t3", Purpose.CREATE_IF_NOT_EXISTS).outcome is CtasOutcome.EXISTS
    assert create(workspace, "t4", Purpose.CREATE_OR_REPLACE, (7,)).outcome is CtasOutcome.REPLACED
    assert rows(workspace) == [7]
    assert workspace.catalog("lake").list_tables("sales") == ["numbers"]


def test_a_table_whose_job_fails_never_existed(workspace: Workspace, iceberg_rest: IcebergRest) -> None:
    def fail(plan: RefreshPlan) -> None:
        write_numbers(plan)
        raise JobFailedError("DIVIDE_BY_ZERO")

    wanted = WantedTable(NUMBERS, "SELECT 1 AS x", ("lake", "sales"), QueryPlace(Path("query"), "SELECT 1 AS x"), Purpose.CREATE)
    with pytest.raises(JobFailedError):
        create_table_as(workspace, Definitions(), wanted, ("t1", "t1"), fail)
    assert workspace.catalog("lake").list_tables("sales") == []
    assert iceberg_rest.routes.catalog.list_tables("sales") == []


def test_a_name_whose_answer_is_lost_is_looked_up(workspace: Workspace, iceberg_rest: IcebergRest) -> None:
    iceberg_rest.fail("POST /v1/tables/rename", "lost 503")
    assert create(workspace, "t1").outcome is CtasOutcome.CREATED
    assert rows(workspace) == [1, 2, 3]


def test_a_name_that_the_catalog_cannot_hold_is_refused_before_the_job(workspace: Workspace) -> None:
    table = TableIdentifier("lake", "sales", "numbers/new")
    wanted = WantedTable(table, "SELECT 1 AS x", ("lake", "sales"), QueryPlace(Path("query"), "SELECT 1 AS x"), Purpose.CREATE)
    with pytest.raises(UnsupportedError, match="where the name of a table has no slashes"):
        create_table_as(workspace, Definitions(), wanted, ("t1", "t1"), lambda _: pytest.fail("a job ran"))
