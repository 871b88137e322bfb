"""Delta tables through the use cases: refreshed, renamed, dropped and recreated; the log lies where the entry says."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")
YAML = "dynamic_tables: [{{name: lake.sales.numbers, format: {}, freshness: 1 day, query: SELECT 1 AS x}}]"


def request(tmp_path: Path, token: str, table_format: str = "delta") -> RefreshRequest:
    path = tmp_path / "tables.yaml"
    path.write_text(YAML.format(table_format))
    definitions = load_definitions(path)
    return RefreshRequest(definitions.tables[NUMBERS], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), token, "a test")


def refresh(workspace: Workspace, tmp_path: Path, token: str, *numbers: int) -> Version:
    version = run(workspace, request(tmp_path, token), lambda plan: write_numbers(plan, numbers))
    assert isinstance(version, Version)
    return version


def rows(workspace: Workspace) -> list[object]:
    return [row["x"] for row in sample(workspace, NUMBERS, 10)]


@pytest.mark.parametrize("purge", [True, False])
def test_what_is_made_anew_has_nothing_of_what_was_dropped(workspace: Workspace, tmp_path: Path, purge: bool) -> None:
    refresh(workspace, tmp_path, "t1", 1)
    folder = workspace.existing_table(NUMBERS).folder()
    dropped = drop(workspace, NUMBERS, purge=purge)
    assert not dropped.is_still_read
    assert Path(folder.removeprefix("file://")).exists() is not purge
    ensure(workspace, request(tmp_path, "t2").table)
    assert workspace.existing_table(NUMBERS).current() is None
    assert workspace.dynamic_table(NUMBERS).columns == ()
    assert refresh(workspace, tmp_path, "t2", 5).number == 1
    assert rows(workspace) == [5]


def test_a_folder_that_is_deleted_while_the_job_runs_is_named(workspace: Workspace, tmp_path: Path) -> None:
    def vandalised(plan: RefreshPlan) -> None:
        write_numbers(plan)
        shutil.rmtree(plan.stage.removeprefix("file://").partition("/_stages/")[0])

    with pytest.raises(StageRejectedError, match=r"The stage of lake.sales.numbers is gone \(file:.*it was deleted while"):
        run(workspace, request(tmp_path, "t1"), vandalised)
    assert refresh(workspace, tmp_path, "t2", 3).number == 1
    assert rows(workspace) == [3]
