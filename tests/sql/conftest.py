"""A folder of definitions, a state, and a session on both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.services.ctas.planning import Decision
from airflow_dynamic_tables.services.ctas.running import make
from airflow_dynamic_tables.services.ctas.wanted import Created, WantedTable
from airflow_dynamic_tables.services.project import Project, open_project
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.sql.executing import execute, read_script
from airflow_dynamic_tables.sql.session import SqlSession, StatementResult
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers


def fields(result: StatementResult) -> dict[str, object]:
    return dict(zip(result.columns, result.rows[0], strict=True))


Say = Callable[..., list[StatementResult]]

CATALOGS = "catalogs: [{name: lake, type: sql, is-default: true, default-database: sales}]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The definitions; beside them the catalogs file, by which short names are of ``lake.sales``."""
    folder = tmp_path / "definitions"
    folder.mkdir()
    (tmp_path / "catalogs.yaml").write_text(CATALOGS)
    return folder


@pytest.fixture
def project(folder: Path) -> Project:
    return open_project(str(folder), environ={})


@pytest.fixture
def workspace(tmp_path: Path, empty_state: Path) -> Iterator[Workspace]:
    state = shutil.copy(empty_state, tmp_path / "state.db")
    settings = WorkspaceSettings(f"sqlite:///{state}", f"file://{tmp_path}/warehouse", tmp_path / "catalogs.yaml")
    with open_workspace(settings, Clock()) as opened:
        yield opened


@pytest.fixture
def session(project: Project, workspace: Workspace) -> SqlSession:
    """A session whose refreshes write the numbers 1, 2 and 3 into column ``x``."""

    def refresh(request: RefreshRequest) -> Version | Skipped:
        return run(workspace, request, write_numbers)

    def create(wanted: WantedTable, decision: Decision) -> Created:
        token = str(uuid4())
        return make(workspace, wanted, decision, (token, f"owner of {token}"), write_numbers)

    def query(_plans: QueryTestPlans, _environment: Mapping[str, str]) -> QueryTestOutcomes:
        pytest.fail("a statement that needs no Spark asked for it")

    return SqlSession.opened(project, workspace, refresh, create, query, "somebody@somewhere")


@pytest.fixture
def say(session: SqlSession) -> Say:
    def said(text: str, by: SqlSession = session) -> list[StatementResult]:
        return [done.answer for done in execute(by, read_script(text, Path("-e")))]

    return said
