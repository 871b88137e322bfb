"""What tests of Delta tables share."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from tests.support.benches.delta import delta_bench
from tests.support.benches.staging import Bench


@pytest.fixture
def bench(catalog: SqlCatalog) -> Bench:
    """A Delta table to stage into, that nobody has made yet."""
    return delta_bench(catalog)
