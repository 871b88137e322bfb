"""Plans for the tests of the job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding

Plan = Callable[..., RefreshPlan]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan that writes into a stage of this test's own."""

    def make(query: str, *sources: SourceBinding, **fields: Any) -> RefreshPlan:
        values = {
            "token": "t1",
            "identifier": "lake.sales.t",
            "schedule_time": datetime(2024, 3, 1, tzinfo=UTC),
            "action": "FULL",
            "reason": "a test",
            "statement": query,
            "query": query,
            "stage": f"file://{tmp_path}/stage/t1",
            "file_format": "parquet",
            "keys_in_files": True,
            "sources": sources,
        }
        return RefreshPlan(**{**values, **fields})

    return make
