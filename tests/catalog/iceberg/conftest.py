"""An empty catalog on the server of Iceberg's REST protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from tests.support.benches.iceberg import iceberg_catalog
from tests.support.benches.registering import register_in
from tests.support.benches.staging import REVENUE, Bench


@pytest.fixture
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[IcebergCatalog]:
    """An empty catalog, opened."""
    with iceberg_catalog("rest", tmp_path, request) as made:
        yield made


@pytest.fixture
def bench(catalog: IcebergCatalog) -> Bench:
    """A dynamic table in it that was not refreshed yet."""
    register_in(catalog, REVENUE)
    return Bench(catalog.stores()[0])
