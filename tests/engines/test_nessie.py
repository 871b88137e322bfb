"""Nessie: its tables are sources, in an object store; it keeps no tags, so that no dynamic table can be made there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from airflow_dynamic_tables.catalog.values import CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.contracts.refreshing.place import MARCH, Place
from tests.support.clock import Clock
from tests.support.iceberg_rest.nessie import Nessie

pytestmark = [pytest.mark.large, pytest.mark.server("nessie")]

ROWS = pa.table({"ds": ["2024-03-01", "2024-03-01", "2024-03-02"], "n": [11, 12, 21]})


@pytest.fixture
def place(nessie: Nessie, tmp_path: Path, empty_state: Path) -> Iterator[Place]:
    """A table that was never refreshed, in Nessie."""
    file = tmp_path / "catalogs.yaml"
    entry = {"name": "lake", "type": "iceberg", "connection-params": {"uri": nessie.uri}}
    file.write_text(json.dumps({"catalogs": [entry]}))
    clock = Clock()
    clock.time = MARCH
    settings = WorkspaceSettings(f"sqlite:///{empty_state}", f"file://{tmp_path}/warehouse", file)
    with nessie.emptied(), open_workspace(settings, clock) as workspace:
        yield Place(workspace, clock, tmp_path, TableIdentifier("lake", "sales", "figures"), "iceberg")


def test_a_dynamic_table_is_refused_and_none_is_left_behind(place: Place) -> None:
    with pytest.raises(UnsupportedError, match="The catalog keeps no tags of Iceberg tables"):
        place.refresh(1, [11])
    assert place.workspace.readable("lake").list_tables("sales") == []


def test_its_tables_are_sources(place: Place, nessie: Nessie) -> None:
    theirs = RestCatalog("nessie", uri=nessie.uri)
    theirs.create_namespace("sales")
    theirs.create_table("sales.figures", ROWS.schema).append(ROWS)
    catalog = place.workspace.readable("lake")
    found = catalog.get_table(place.table.path)
    assert isinstance(found, CatalogTable)
    assert [(column.name, column.type) for column in found.columns] == [("ds", "string"), ("n", "bigint")]
    assert catalog.list_tables("sales") == ["figures"]
    assert place.rows() == {1: [11, 12], 2: [21]}
    before = place.workspace.table(place.table, "iceberg").read().state
    theirs.load_table("sales.figures").append(ROWS)
    assert place.workspace.table(place.table, "iceberg").read().state != before
    theirs.close()
