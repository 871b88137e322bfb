"""A format that nobody but the registries knows is declared, refreshed and looked at like any other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample, show_table
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")


@pytest.mark.usefixtures("toy_format")
def test_a_table_of_a_new_format_is_refreshed_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text("dynamic_tables: [{name: lake.sales.numbers, format: toy, freshness: 1 day, query: SELECT 1 AS x}]")
    definitions = load_definitions(path)
    request = RefreshRequest(definitions.tables[NUMBERS], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), "t1", "a test")
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        assert isinstance(run(workspace, request, write_numbers), Version)
        again = run(workspace, replace(request, token="t2"), lambda plan: write_numbers(plan, (7,)))
        assert isinstance(again, Version)
        assert (again.number, again.token) == (2, "t2")
        assert [row["x"] for row in sample(workspace, NUMBERS, 10)] == [7]
        assert show_table(workspace, NUMBERS).status.format == "toy"
