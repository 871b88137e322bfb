"""Glue renames in several calls: a table that somebody was killed between has two names, until the next one takes one away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.iceberg.glue import RenamingGlue
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import TableAlreadyExistsError
from airflow_dynamic_tables.services.lifecycle.registration import finish_rename, rename
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.catalogs.samples import DYNAMIC
from tests.support.benches.iceberg import glue_properties
from tests.support.object_store import running_object_store

OLD, NEW = (TableIdentifier("lake", "sales", name) for name in ("old", "new"))

ENTRY = replace(DYNAMIC, format="iceberg", location=None)


@pytest.fixture(scope="module")
def glue() -> Iterator[dict[str, str]]:
    with running_object_store() as store:
        yield {"type": "glue", **glue_properties(store)}


@pytest.fixture
def workspace(tmp_path: Path, empty_state: Path, glue: dict[str, str]) -> Iterator[Workspace]:
    """A Glue with one dynamic table, ``sales.old``."""
    shutil.copy(empty_state, tmp_path / "state.db")
    warehouse = f"file://{tmp_path}/warehouse"
    entry = {"name": "lake", "type": "iceberg", "connection-params": {**glue, "warehouse": warehouse}}
    (tmp_path / "catalogs.yaml").write_text(json.dumps({"catalogs": [entry]}))
    with open_workspace(WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", warehouse, tmp_path / "catalogs.yaml")) as opened:
        catalog = opened.catalog("lake")
        catalog.create_database("sales", CatalogDatabase())
        catalog.create_table(OLD.path, ENTRY)
        yield opened
        catalog.drop_database("sales", cascade=True)


@pytest.fixture
def both_names(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(RenamingGlue, "drop_table", die)
        with pytest.raises(SystemExit):
            rename(workspace, OLD, NEW)
    assert workspace.catalog("lake").list_tables("sales") == ["new", "old"]


@pytest.mark.usefixtures("both_names")
def test_the_same_call_takes_the_former_name_away(workspace: Workspace) -> None:
    assert rename(workspace, OLD, NEW).after == NEW
    assert workspace.catalog("lake").list_tables("sales") == ["new"]


@pytest.mark.usefixtures("both_names")
def test_the_next_refresh_takes_the_former_name_away(workspace: Workspace) -> None:
    """Else the table would be there a second time for whoever drops what is no longer defined, with all files."""
    finish_rename(workspace, NEW)
    assert workspace.catalog("lake").list_tables("sales") == ["new"]
    entry = workspace.find_entry(NEW)
    assert not entry.refresh_handler.renamed_from


@pytest.mark.large
@pytest.mark.usefixtures("both_names")
def test_another_table_that_has_the_former_name_by_now_keeps_it(workspace: Workspace) -> None:
    catalog = workspace.catalog("lake")
    catalog.drop_table(OLD.path)
    catalog.create_table(OLD.path, ENTRY)
    with pytest.raises(TableAlreadyExistsError, match="new exists already"):
        rename(workspace, OLD, NEW)
    finish_rename(workspace, NEW)
    assert catalog.list_tables("sales") == ["new", "old"]
