"""A gateway with three tables, of which one reads another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.gateway import Served, served

DEFINITIONS = """
defaults: {catalog: lake, database: sales}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders}
dynamic_tables:
  - name: daily
    comment: Orders of each day
    freshness: 1 day
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    query: SELECT ds, count(*) AS orders FROM raw.orders GROUP BY ds
  - name: monthly
    freshness: 1 day
    query: SELECT substr(ds, 1, 7) AS month, sum(orders) AS orders FROM daily GROUP BY 1
  - name: alone
    freshness: 1 hour
    query: SELECT 1 AS one
"""


@pytest.fixture
def gateway(tmp_path: Path, empty_state: Path) -> Iterator[Served]:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    (definitions / "sales.yaml").write_text(DEFINITIONS)
    with served(tmp_path, definitions, Path(shutil.copy(empty_state, tmp_path / "state.db"))) as server:
        yield server


@pytest.fixture
def client(gateway: Served) -> httpx.Client:
    return gateway.client
