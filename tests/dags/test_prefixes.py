"""``dag_id_prefix``: one id of the DAG, whoever asks: Airflow, the catalog, the listing, a child that waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dag_factory import MAINTENANCE_DAG, load_dynamic_tables
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions
from airflow_dynamic_tables.definitions.model import Conventions
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import list_tables
from airflow_dynamic_tables.services.workspace import open_workspace
from airflow_dynamic_tables.triggers.upstream import UpstreamTrigger, upstream_to_text

PARENT, CHILD, GROUPED = (TableIdentifier("lake", "sales", name) for name in ("parent", "child", "grouped"))
IDS = {
    PARENT: "dev_dynamic_table__lake__sales__parent",
    CHILD: "dev_dynamic_table__lake__sales__child",
    GROUPED: "dev_dynamic_table_group__both",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNAMIC_TABLES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STAGE", "dev")
    monkeypatch.setenv("DYNAMIC_TABLES_VARIABLES", "STAGE")
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "defaults.yaml").write_text("defaults: {catalog: lake, database: sales, dag_id_prefix: '${STAGE}_'}\n")
    (folder / "tables.yaml").write_text(
        "dynamic_tables:\n"
        "  - {name: parent, freshness: 1 day, query: SELECT 1 AS a}\n"
        "  - {name: child, freshness: 1 day, query: SELECT a FROM parent}\n"
        "  - {name: grouped, freshness: 1 day, dag: both, query: SELECT 1 AS a}\n"
    )
    return folder


def _dags(folder: Path) -> dict[str, Any]:
    dags: dict[str, Any] = {}
    load_dynamic_tables(dags, folder)
    return dags


def test_the_dags_of_tables_and_groups_have_it_and_the_maintenance_has_not(folder: Path) -> None:
    dags = _dags(folder)
    assert set(dags) == {*IDS.values(), MAINTENANCE_DAG}
    child = dags[IDS[CHILD]]
    assert child.dag_display_name == "lake.sales.child"
    assert f"(dags/{IDS[PARENT]})" in child.doc_md


def test_a_task_finds_its_dag_by_that_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _dags(folder)
    for dag_id in IDS.values():
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
        assert list(_dags(folder)) == [dag_id]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "dynamic_table__lake__sales__parent")
    assert _dags(folder) == {}


def test_a_child_that_waits_asks_after_the_runs_of_that_dag(folder: Path) -> None:
    (parent,) = _dags(folder)[IDS[CHILD]].get_task("refresh").parents
    assert parent.workflow_id == IDS[PARENT]
    kept = UpstreamTrigger(upstream_to_text([parent]), "", "", "").serialize()[1]
    assert kept["parents"][0][6] == IDS[PARENT]


def test_catalog_and_listing_name_that_dag_and_another_one_is_told(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = load_definitions(folder, conventions=Conventions(variables=("STAGE",))).tables
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        for table in tables.values():
            ensure(workspace, table)
        assert {status.identifier: status.workflow_id for status in list_tables(workspace, tables).tables} == {
            str(identifier): dag_id for identifier, dag_id in IDS.items()
        }
        assert {status.workflow_id for status in list_tables(workspace, {}).tables} == set(IDS.values()), "no longer defined"
        caplog.clear()
        ensure(workspace, tables[PARENT])
        assert not caplog.messages
        ensure(workspace, replace(tables[PARENT], dag_id_prefix="prod_"))
    (told,) = caplog.messages
    assert told.startswith(f"lake.sales.parent belonged to the DAG {IDS[PARENT]}, and belongs to prod_dynamic_table__")


@pytest.mark.parametrize("prefix", ["a b", "ü_", "my_dynamic_table__", "a" * 30, "a/b"])
def test_a_prefix_that_would_not_do_is_a_mistake(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a.yaml").write_text(
        f"dynamic_tables: [{{name: t, freshness: 1 day, query: SELECT 1 AS a, dag_id_prefix: '{prefix}'}}]\n"
    )
    definitions, (mistake,) = load_sound_definitions(tmp_path, cache=Cache(None))
    assert not definitions.tables
    assert (mistake.line, mistake.column) == (1, 83)


def test_an_empty_prefix_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGE_PREFIX", raising=False)
    (tmp_path / "defaults.yaml").write_text("defaults: {dag_id_prefix: '${STAGE_PREFIX:-}'}\n")
    (tmp_path / "a.yaml").write_text("dynamic_tables: [{name: t, freshness: 1 day, query: SELECT 1 AS a}]\n")
    conventions = Conventions(variables=("STAGE_PREFIX",))
    (table,) = load_definitions(tmp_path, conventions=conventions, cache=Cache(None)).tables.values()
    assert table.workflow_id == "dynamic_table__default__default__t"
