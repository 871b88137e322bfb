"""What a refresh begins with before anything is staged: an entry in the catalog, without columns."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogDynamicTable, JobState, RefreshHandler
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schedule import RefreshMode


def register(store: MetastoreStore, path: ObjectPath, file_format: str, partition_keys: tuple[str, ...]) -> None:
    register_in(HiveCatalog(store.catalog, store.metastore), path, file_format, partition_keys)


def register_in(
    catalog: ReadableWritableCatalog, path: ObjectPath, table_format: str = "iceberg", partition_keys: tuple[str, ...] = ("ds",)
) -> None:
    entry = CatalogDynamicTable(
        columns=(),
        original_query="SELECT 1",
        expanded_query="SELECT 1",
        freshness="1 day",
        declared_refresh_mode=RefreshMode.FULL,
        refresh_handler=RefreshHandler(RefreshMode.FULL, JobState.RUNNING, {}),
        comment="how much",
        partition_keys=partition_keys,
        format=table_format,
    )
    catalog.create_database(path.database, CatalogDatabase(), ignore_if_exists=True)
    catalog.create_table(path, entry, ignore_if_exists=True)
