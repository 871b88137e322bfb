"""What tests of one format share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.metastore.client import Metastore
from tests.support.benches.catalogs import sql_catalog_in
from tests.support.metastore import HiveMetastore


@pytest.fixture
def catalog(tmp_path: Path, empty_state: Path) -> Iterator[SqlCatalog]:
    """An empty catalog of Iceberg and Delta tables."""
    with sql_catalog_in(tmp_path, empty_state) as made:
        yield made


@pytest.fixture
def metastore(hive_metastore: HiveMetastore) -> Iterator[Metastore]:
    with closing(Metastore(hive_metastore.uri)) as metastore:
        yield metastore
