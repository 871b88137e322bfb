"""What tests of Hive tables share."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.metastore.client import Metastore
from tests.support.benches.hive import hive_bench
from tests.support.benches.staging import Bench


@pytest.fixture
def hive(metastore: Metastore, tmp_path: Path) -> Bench:
    """A partitioned Hive table to stage into, which does not exist yet."""
    return hive_bench(metastore, tmp_path)
