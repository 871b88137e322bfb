"""What a deployment does not allow is refused when a refresh is planned: views and functions are only known by then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import Attempt, begin
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

TABLES = """
defaults: {catalog: lake, database: sales}
sources: [{name: v, format: view}]
dynamic_tables:
  - {name: reads_view, freshness: 1 day, query: SELECT x FROM v}
  - {name: calls_python, freshness: 1 day, query: SELECT py() AS x}
  - {name: calls_java, freshness: 1 day, query: SELECT lake.sales.`Jv`() AS x}
  - {name: plain, freshness: 1 day, query: SELECT 1 AS x}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    environ = {
        "AIRFLOW_HOME": str(tmp_path),
        "DYNAMIC_TABLES_ALLOW": "{transform: false, java_calls: false, python_functions: false}",
    }
    with open_workspace(embedded_settings(environ)) as opened:
        catalog = opened.catalog("lake")
        catalog.create_database("sales", CatalogDatabase())
        # As another engine may have made it.
        text = "SELECT x\nFROM (SELECT TRANSFORM(1) USING 'id' AS (x INT)) a"
        catalog.create_table(ObjectPath("sales", "v"), CatalogView(text, text))
        catalog.create_function(ObjectPath("sales", "py"), CatalogFunction("os:getcwd", "python", {"returns": "STRING"}))
        catalog.create_function(ObjectPath("sales", "jv"), CatalogFunction("com.example.Function", "java"))
        yield opened


def begin_refresh(workspace: Workspace, folder: Path, name: str) -> object:
    (folder / "tables.yaml").write_text(TABLES)
    definitions = load_definitions(folder / "tables.yaml")
    table = definitions.table(name)
    assert table is not None
    request = RefreshRequest(table, definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), token=name, owner="test")
    return begin(workspace, request)


REFUSED = {
    "reads_view": "View lake.sales.v:2:27: starting programs (TRANSFORM, MAP or REDUCE ... USING) is not allowed here",
    "calls_python": "Function lake.sales.py: calling Python functions of catalogs is not allowed here",
    "calls_java": "Function lake.sales.jv: calling Java",
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(workspace: Workspace, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        begin_refresh(workspace, tmp_path, name)
    assert str(refused.value).startswith(REFUSED[name])


def test_the_job_is_told(workspace: Workspace, tmp_path: Path) -> None:
    begun = begin_refresh(workspace, tmp_path, "plain")
    assert isinstance(begun, Attempt)
    assert begun.plan.allowed == Allowed(transform=False, java_calls=False, python_functions=False)
    assert type(begun.plan).from_json(begun.plan.to_json()).allowed == begun.plan.allowed


def test_settings() -> None:
    assert embedded_settings({}).allowed == EVERYTHING
    with pytest.raises(ConfigurationError, match=r"^DYNAMIC_TABLES_ALLOW: 'transform: maybe' says nothing; write for example"):
        embedded_settings({"DYNAMIC_TABLES_ALLOW": "transform: maybe"})
