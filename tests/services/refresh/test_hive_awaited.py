"""Waiting for a partition of a metastore's table."""

from __future__ import annotations

from pathlib import Path

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogPartition, CatalogTable
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import AwaitedData
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.services.refresh.upstream import what_is_not_there
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.metastore import HiveMetastore

EVENTS = TableIdentifier("hms", "awaited", "events")


def test_a_partition(tmp_path: Path, hive_metastore: HiveMetastore) -> None:
    file = tmp_path / "catalogs.yaml"
    file.write_text(f"catalogs: [{{name: hms, type: hive, connection-params: {{uri: '{hive_metastore.uri}'}}}}]\n")
    with open_workspace(WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse", file)) as workspace:

        def look(partition: str) -> str | None:
            return what_is_not_there(workspace, AwaitedData(partition, EVENTS))

        assert look("ds=2024-01-01") == "partition ds=2024-01-01 of hms.awaited.events is not there yet"
        catalog = workspace.catalog("hms")
        path = ObjectPath("awaited", "events")
        catalog.create_database("awaited", CatalogDatabase())
        try:
            columns = (Column("x", "bigint"), Column("ds", "string"), Column("hh", "string"))
            location = (tmp_path / "events").as_uri()
            catalog.create_table(path, CatalogTable(columns, format="parquet", location=location, partition_keys=("ds", "hh")))
            assert look("ds=2024-01-01") == "partition ds=2024-01-01 of hms.awaited.events is not there yet"
            catalog.create_partition(path, CatalogPartition({"ds": "2024-01-01", "hh": "00"}, f"{location}/ds=2024-01-01/hh=00"))
            assert look("ds=2024-01-01") is None
            assert look("ds=2024-01-01/hh=00") is None
            assert look("ds=2024-01-01/hh=23") == "partition ds=2024-01-01/hh=23 of hms.awaited.events is not there yet"
        finally:
            catalog.drop_database("awaited", cascade=True)
