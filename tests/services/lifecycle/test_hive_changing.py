"""Hive tables are renamed and dropped like all others."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import adopt
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.changed_tables import NamedTable, keeps_data_and_history


@pytest.fixture(params=["parquet", "orc"])
def table(request: pytest.FixtureRequest, tmp_path: Path, hive_workspace: Workspace) -> NamedTable:
    name = TableIdentifier("hms", f"changing_{uuid4().hex[:8]}", "numbers")
    return NamedTable(hive_workspace, tmp_path, name, request.param)


@pytest.mark.sampled
def test_a_renamed_table_keeps_data_and_history(table: NamedTable) -> None:
    keeps_data_and_history(table)


def test_purged_files_are_gone(table: NamedTable) -> None:
    table.refresh(1, 2)
    folder = table.workspace.existing_table(table.name).folder()
    assert drop(table.workspace, table.name, purge=True).purged.files > 0
    assert not Path(folder.removeprefix("file://")).exists()
    assert table.refresh(7).number == 1
    assert table.numbers() == [7]


def test_the_folder_of_an_adopted_table_is_not_purged(table: NamedTable, tmp_path: Path) -> None:
    catalog = table.workspace.catalog("hms")
    catalog.create_database(table.name.database, CatalogDatabase())
    columns = (Column("n", "bigint"), Column("ds", "string"))
    location = f"file://{tmp_path}/orders"
    catalog.create_table(table.name.path, CatalogTable(columns, None, ("ds",), table.format, location))
    adopt(table.workspace, table.definitions().tables[table.name])
    with pytest.raises(ConfigurationError, match="was not made for"):
        drop(table.workspace, table.name, purge=True)
    assert drop(table.workspace, table.name).location == location
