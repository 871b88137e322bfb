"""An empty ``hive`` catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog
from tests.support.benches.catalogs import empty_hive_catalog, new_name
from tests.support.metastore import HiveMetastore


@pytest.fixture
def hive_catalog(hive_metastore: HiveMetastore) -> Iterator[HiveCatalog]:
    """An empty catalog in a Hive metastore, opened."""
    made = empty_hive_catalog(new_name(), hive_metastore)
    made.open()
    yield made
    made.close()
