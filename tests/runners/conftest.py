"""Plans for the tests of runners."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from tests.support.jobs import make_plan


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., RefreshPlan]:
    return partial(make_plan, tmp_path)
