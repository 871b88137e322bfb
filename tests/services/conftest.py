"""A workspace whose clock stands still, and the bench of versions on both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.benches.versions import VersionBench
from tests.support.clock import Clock


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def version_bench(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> Iterator[VersionBench]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_state")()
    else:
        url = f"sqlite:///{shutil.copy(empty_state, tmp_path / 'state.db')}"
    bench = VersionBench(tmp_path, url)
    yield bench
    bench.workspace.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workspace(tmp_path: Path, clock: Clock) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)}), clock) as opened:
        yield opened
